package driver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
)

// longestLine exceeds every message of QEMU.
const longestLine = 8 << 20

// In some tests virt-launcher starts this stand-in instead of QEMU. It starts QEMU, and stands between virt-handler and
// QEMU's monitor: it changes only the run state, which is the content of a file. So a guest can be in states that
// otherwise need a broken KVM, a debugger or another version of QEMU.

// stateFile is in the pod's folder of sockets. If it is empty, the run state is QEMU's.
const stateFile = "run-state"

// quietly is the suffix of a state that no event reports.
const quietly = " quietly"

// standInQEMU is the container's path of the real program.
const standInQEMU = "/run/behind/bin/qemu-system-x86_64"

// kvmError is QEMU's output when it stops on an error of KVM.
const kvmError = `KVM internal error. Suberror: 1
emulation failure
EAX=00000000 EBX=00000000 ECX=00000000 EDX=00000663
ES =0000 00000000 0000ffff 00009300
Code=00 00 00 <ff> ff 00
`

// standIn is the program. It ends as QEMU does.
func standIn() int {
	socket := layout.Socket(layout.QMPSocket)
	behind := socket + ".real"
	args := append([]string(nil), os.Args[1:]...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], socket+",", behind+",")
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, "stand-in:", err)
		return 1
	}
	// The kernel ends QEMU with the thread that started it.
	runtime.LockOSThread()
	qemu := exec.Command(standInQEMU, args...)
	qemu.Stdout, qemu.Stderr = os.Stderr, os.Stderr
	qemu.ExtraFiles = []*os.File{os.NewFile(3, "monitor")}
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := qemu.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "stand-in:", err)
		return 1
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go stand(conn, behind)
		}
	}()
	err = qemu.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// stand serves one connection to the monitor.
func stand(conn net.Conn, behind string) {
	defer conn.Close()
	var qemu net.Conn
	for qemu == nil { // QEMU makes its socket before anything else
		var err error
		if qemu, err = net.Dial("unix", behind); err != nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
	defer qemu.Close()
	var write sync.Mutex
	say := func(line []byte) {
		write.Lock()
		defer write.Unlock()
		_, _ = conn.Write(append(line, '\n'))
	}
	// A state that is pretended from now on has an event, since nobody knows it yet.
	last := pretended()
	done := make(chan struct{})
	go func() {
		defer close(done)
		answers := bufio.NewScanner(qemu)
		answers.Buffer(nil, longestLine)
		for answers.Scan() {
			say(disguise(bytes.TrimSpace(answers.Bytes())))
		}
	}()
	go func() {
		defer qemu.Close()
		commands := bufio.NewScanner(conn)
		commands.Buffer(nil, longestLine)
		for commands.Scan() {
			if _, err := qemu.Write(append(commands.Bytes(), '\n')); err != nil {
				return
			}
		}
	}()
	for {
		select {
		case <-done:
			return
		case <-time.After(10 * time.Millisecond):
		}
		if now := pretended(); now != last {
			last = now
			if strings.HasSuffix(now, quietly) {
				continue
			}
			say([]byte(`{"event": "STOP", "timestamp": {"seconds": 1, "microseconds": 0}}`))
		}
	}
}

// complain writes QEMU's error message before anybody can have heard of the state.
var complain = sync.OnceFunc(func() { fmt.Fprint(os.Stderr, kvmError) })

func pretended() string {
	state, _ := os.ReadFile(filepath.Join(layout.PrivateDir, stateFile))
	return string(state)
}

// disguise puts the run state into an answer to query-status.
func disguise(line []byte) []byte {
	var answer struct {
		Return struct {
			Status  *string `json:"status"`
			Running *bool   `json:"running"`
		} `json:"return"`
		ID json.RawMessage `json:"id"`
	}
	state := strings.TrimSuffix(pretended(), quietly)
	if json.Unmarshal(line, &answer) != nil || answer.Return.Status == nil || answer.Return.Running == nil || state == "" {
		return line
	}
	if state == "internal-error" {
		complain()
	}
	return fmt.Appendf(nil, `{"return": {"status": %q, "singlestep": false, "running": false}, "id": %s}`, state, answer.ID)
}

// pretend makes the stand-in of a pod's QEMU report a run state.
func (p *pod) pretend(t *testing.T, state string) {
	t.Helper()
	path := filepath.Join(p.volume(layout.PrivateVolume), stateFile)
	if err := os.WriteFile(path+".new", []byte(state), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
