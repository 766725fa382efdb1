package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"drydock.dev/drydock/internal/launcher/stderrtail"
	"drydock.dev/drydock/internal/qemu/qmp"
)

// monitorFD is the descriptor that QEMU inherits for the launcher's own
// monitor. virt-handler has the one that listens on a socket; this one cannot be
// taken away, and is there before anything else (decision 033).
const monitorFD = 3

// process is a running QEMU.
type process struct {
	pid     int
	ended   <-chan syscall.WaitStatus
	monitor net.Conn
	stderr  *stderrtail.Tail
	// drained is closed when all of QEMU's standard error is in the tail.
	drained chan struct{}
	// connected is closed when client is set or never will be.
	connected chan struct{}
	client    *qmp.Client
	gone      chan struct{}
}

// startProcess starts QEMU. If the launcher dies, however it does, so does
// QEMU: a guest without its launcher would be one that nobody answers for.
func startProcess(program string, args []string, log io.Writer, children *reaper) (*process, error) {
	ours, theirs, err := qmp.SocketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("making QEMU's standard input: %w", err)
	}
	defer null.Close()
	read, write, err := os.Pipe()
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("making QEMU's standard error: %w", err)
	}
	defer write.Close()
	p := &process{
		monitor: ours, stderr: &stderrtail.Tail{Also: log}, drained: make(chan struct{}),
		connected: make(chan struct{}), gone: make(chan struct{}),
	}
	argv := append([]string{program}, args...)
	argv = append(argv,
		"-chardev", "socket,id=launcher0,fd="+strconv.Itoa(monitorFD), "-mon", "chardev=launcher0,mode=control")
	if err := p.fork(argv, []uintptr{null.Fd(), write.Fd(), write.Fd(), theirs.Fd()}, children); err != nil {
		_ = ours.Close()
		_ = read.Close()
		return nil, err
	}
	go p.drain(read)
	return p, nil
}

// fork starts the program on a thread that stays for as long as it runs: the
// kernel sends the signal of a parent's death when the thread dies that forked.
func (p *process) fork(argv []string, files []uintptr, children *reaper) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var err error
		p.pid, p.ended, err = children.start(func() (int, error) {
			return syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
				Files: files, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"},
				Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
			})
		})
		if err != nil {
			started <- fmt.Errorf("starting %s: %w", argv[0], err)
			return
		}
		started <- nil
		<-p.gone
	}()
	return <-started
}

// drain is the goroutine that reads QEMU's standard error; QEMU's end ends it.
func (p *process) drain(read *os.File) {
	defer close(p.drained)
	defer read.Close()
	// Whatever can be read is read; an error is the end of it.
	_, _ = io.Copy(p.stderr, read)
}

// watcher is told, in this order: ready when the monitor has answered, every
// event, ended when the process has. ready may stay out.
type watcher struct {
	ready func()
	event func(name string, data []byte)
	ended func(exitStatus)
}

// watch follows QEMU until its end.
func (p *process) watch(w watcher) {
	client, err := qmp.New(context.Background(), p.monitor, func(e qmp.Event) { w.event(e.Name, e.Data) })
	if err == nil {
		p.client = client
		w.ready()
	}
	close(p.connected)
	status := <-p.ended
	close(p.gone)
	<-p.drained
	deaf := true
	if client != nil {
		// QEMU's end closed the monitor. What it said last comes before its end.
		<-client.Done()
		deaf = !errors.Is(client.Err(), io.EOF)
		_ = client.Close()
	}
	w.ended(exitStatus{wait: status, stderr: p.stderr.Sentence(), deaf: deaf})
}

// pressEvery is how often a guest is asked to end. One that is still booting
// does not hear the button; one that is shutting down does not mind it.
const pressEvery = 5 * time.Second

// powerButton presses the ACPI button until QEMU has ended.
func (p *process) powerButton() {
	ticker := time.NewTicker(pressEvery)
	defer ticker.Stop()
	for {
		p.command("system_powerdown")
		select {
		case <-ticker.C:
		case <-p.gone:
			return
		}
	}
}

// quit ends QEMU: in order if it does so in time, else by a signal.
func (p *process) quit(patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		p.command("quit")
	}()
	select {
	case <-p.gone:
	case <-timer.C:
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
		<-p.gone
	}
	<-answered
}

// command runs a monitor command as soon as there is a monitor.
func (p *process) command(name string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	select {
	case <-p.connected:
	case <-p.gone:
		return
	}
	if p.client != nil {
		// A monitor that fails is QEMU's end, which watch reports.
		_ = p.client.Execute(ctx, name, nil, nil)
	}
}
