package launcher

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/test/accelerator"
	"drydock.dev/drydock/test/shipped"
)

// asLauncher, when set, turns the test binary into virt-launcher: a process that reaps all its children can't be tested
// inside one that has others.
const asLauncher = "DRYDOCK_TEST_AS_LAUNCHER"

// asReaper turns it into a process that inherits orphans.
const asReaper = "DRYDOCK_TEST_AS_REAPER"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asReaper) != "":
		os.Exit(reapOrphans())
	case os.Getenv(asLauncher) == "":
		os.Exit(m.Run())
	}
	code, err := Main(context.Background(), os.Args[0], os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "virt-launcher:", err)
	}
	os.Exit(code)
}

const patience = 4 * time.Minute

// SeaBIOS without a disk runs until it is ended.
func (r *running) qemuArgs(more ...string) []string {
	r.t.Helper()
	return append([]string{
		"-nodefaults", "-no-user-config", "-machine", "q35", "-accel", accelerator.Of(r.t), "-m", "32", "-display", "none",
		"-action", "shutdown=poweroff,reboot=reset,panic=shutdown",
		"-chardev", "socket,id=qmp0,path=" + filepath.Join(r.dir, layout.QMPSocket) + ",server=on,wait=off",
		"-mon", "chardev=qmp0,mode=control",
	}, more...)
}

// running is a virt-launcher process.
type running struct {
	t     *testing.T
	dir   string
	cmd   *exec.Cmd
	log   *lockedBuffer
	ended chan struct{}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func launchProcess(t *testing.T, program string, more ...string) *running {
	t.Helper()
	dir, err := os.MkdirTemp("", "launcher") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	termination := filepath.Join(dir, "termination-log")
	if err := os.WriteFile(termination, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, dir: dir, log: &lockedBuffer{}, ended: make(chan struct{})}
	r.cmd = exec.Command(program, "-dir", dir, "-qemu", qemuBinary(t), "-tpm", shipped.Program(t, "swtpm"), "-share", shipped.Program(t, "virtiofsd"), "-termination-log", termination)
	r.cmd.Args = append(r.cmd.Args, more...)
	r.cmd.Env = append(os.Environ(), asLauncher+"=1")
	r.cmd.Stderr = r.log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait() // tests that care assert its exit code
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
		if t.Failed() {
			t.Logf("virt-launcher's log:\n%s", r.log)
		}
		_ = os.RemoveAll(dir)
	})
	return r
}

func newLauncher(t *testing.T) *running {
	t.Helper()
	return launchProcess(t, os.Args[0])
}

func qemuBinary(t *testing.T) string {
	t.Helper()
	return shipped.Program(t, "qemu-system-x86_64")
}

// client is virt-handler's side of a connection.
type client struct {
	t       *testing.T
	conn    net.Conn
	scanner *bufio.Scanner
	id      uint64
	// frozen has the received messages about that, in order.
	frozen []bool
}

func (r *running) connect() (*client, launch.State) {
	r.t.Helper()
	var conn net.Conn
	waitFor(r.t, "the launcher's socket", func() bool {
		var err error
		conn, err = net.Dial("unix", filepath.Join(r.dir, layout.LauncherSocket))
		return err == nil
	})
	c := &client{t: r.t, conn: conn, scanner: bufio.NewScanner(conn)}
	r.t.Cleanup(func() { _ = conn.Close() })
	m := c.read()
	if m.Hello == nil {
		r.t.Fatalf("the first message is %+v, not Hello", m)
	}
	return c, m.Hello.State
}

func (c *client) read() launch.Message {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	if !c.scanner.Scan() {
		c.t.Fatalf("reading a message: %v", c.scanner.Err())
	}
	var m launch.Message
	if err := json.Unmarshal(c.scanner.Bytes(), &m); err != nil {
		c.t.Fatal(err)
	}
	return m
}

func (c *client) ask(request launch.Request) launch.Reply {
	c.t.Helper()
	c.id++
	request.ID = c.id
	line, err := json.Marshal(request)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.conn.Write(append(line, '\n')); err != nil {
		c.t.Fatal(err)
	}
	m := c.read()
	for m.Event != nil && m.Event.Frozen != nil {
		c.frozen = append(c.frozen, *m.Event.Frozen)
		m = c.read()
	}
	if m.Reply == nil || m.Reply.ID != c.id {
		c.t.Fatalf("the answer to request %d is %+v", c.id, m)
	}
	return *m.Reply
}

func (c *client) exited() launch.Exit {
	c.t.Helper()
	m := c.read()
	if m.Event == nil || m.Event.Exited == nil {
		c.t.Fatalf("expected the exit, got %+v", m)
	}
	if ago := time.Since(m.Event.ExitedAt); ago < 0 || ago > patience {
		c.t.Errorf("QEMU has ended at %v, %v ago", m.Event.ExitedAt, ago)
	}
	return *m.Event.Exited
}

func (r *running) start(grace int64) (*client, int) {
	r.t.Helper()
	c, state := r.connect()
	if state.Phase != launch.PhaseWaiting {
		r.t.Fatalf("a new launcher is %s", state.Phase)
	}
	reply := c.ask(launch.Request{Start: &launch.Start{Args: r.qemuArgs(), GracePeriodSeconds: grace}})
	if reply.Error != "" || reply.State == nil || reply.State.Phase != launch.PhaseRunning {
		r.t.Fatalf("starting QEMU: %+v", reply)
	}
	return c, reply.State.QEMUPID
}

func (r *running) monitor() *qmp.Client {
	r.t.Helper()
	m, err := qmp.Dial(r.t.Context(), filepath.Join(r.dir, layout.QMPSocket), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = m.Close() })
	return m
}

// Exit code, termination message and report to virt-handler must agree.
func (r *running) finish(code int, told launch.Exit) {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		r.t.Fatal("virt-launcher does not end")
	}
	if got := r.cmd.ProcessState.ExitCode(); got != code {
		r.t.Errorf("virt-launcher's exit code is %d, want %d", got, code)
	}
	text, err := os.ReadFile(filepath.Join(r.dir, "termination-log"))
	if err != nil {
		r.t.Fatal(err)
	}
	var exit launch.Exit
	if err := json.Unmarshal(text, &exit); err != nil || exit != told {
		r.t.Errorf("the termination message is %q (%v), virt-handler was told %+v", text, err, told)
	}
}

// waitFor polls a condition of another process that sends no event.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline, tick := time.Now().Add(patience), time.Tick(5*time.Millisecond); !condition(); <-tick {
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s", what)
		}
	}
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	stat, err := process.Stat()
	return err == nil && stat.State != "Z"
}
