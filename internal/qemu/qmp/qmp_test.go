package qmp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/test/accelerator"
	"drydock.dev/drydock/test/shipped"
)

const patience = 4 * time.Minute

// Both must pass the same tests, so that the fake can show behavior that QEMU can't be made to show.
var servers = map[string]func(*testing.T) string{"QEMU": realQEMU, "fake": fakeQEMU}

func realQEMU(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "qmp")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "qmp.sock")
	cmd := exec.Command(shipped.Program(t, "qemu-system-x86_64"), "-nodefaults", "-no-user-config", "-machine", "q35", "-accel", accelerator.Of(t),
		"-m", "32", "-display", "none", "-S", "-qmp", "unix:"+socket+",server=on,wait=off")
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting QEMU: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	for deadline, tick := time.Now().Add(patience), time.Tick(5*time.Millisecond); ; <-tick {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
			return socket
		}
		if time.Now().After(deadline) {
			t.Fatalf("QEMU does not listen: %v", err)
		}
	}
}

// fakeQEMU is the model of QEMU in other packages' tests.
func fakeQEMU(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "qmp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "fake.sock")
	qmptest.New(t).Listen(socket)
	return socket
}

func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "qmp")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "fake.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = listener.Close()
		_ = os.RemoveAll(dir)
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

func dial(t *testing.T, socket string, events func(qmp.Event)) *qmp.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := qmp.Dial(ctx, socket, events)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestConformance(t *testing.T) {
	for name, serve := range servers {
		t.Run(name, func(t *testing.T) {
			socket := serve(t)
			t.Run("a command's result is filled in", func(t *testing.T) { result(t, dial(t, socket, nil)) })
			t.Run("a refusal has a class", func(t *testing.T) { refusal(t, dial(t, socket, nil)) })
			t.Run("events come in order while commands go on", func(t *testing.T) { eventsInOrder(t, socket) })
			t.Run("an event's receiver may execute commands", func(t *testing.T) { commandFromEvent(t, socket) })
			t.Run("the end is told after the last event", func(t *testing.T) { end(t, socket) })
		})
	}
}

func result(t *testing.T, c *qmp.Client) {
	var status struct{ Running bool }
	status.Running = true
	if err := c.Execute(t.Context(), "query-status", nil, &status); err != nil || status.Running {
		t.Errorf("%+v, %v", status, err)
	}
}

func refusal(t *testing.T, c *qmp.Client) {
	err := c.Execute(t.Context(), "no-such-command", nil, nil)
	var refused *qmp.Error
	if !errors.As(err, &refused) || refused.Class != "CommandNotFound" || refused.Command != "no-such-command" ||
		!strings.Contains(err.Error(), "The command no-such-command has not been found") {
		t.Errorf("%v", err)
	}
}

func eventsInOrder(t *testing.T, socket string) {
	var mu sync.Mutex
	var seen []string
	c := dial(t, socket, func(e qmp.Event) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, e.Name)
		if e.Time.IsZero() {
			t.Errorf("%s has no time", e.Name)
		}
	})
	var want []string
	var others sync.WaitGroup
	for range 20 {
		others.Go(func() {
			var status struct{ Running *bool }
			if err := c.Execute(t.Context(), "query-status", nil, &status); err != nil || status.Running == nil {
				t.Errorf("%+v, %v", status, err)
			}
		})
		for _, command := range []string{"cont", "stop"} {
			if err := c.Execute(t.Context(), command, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		want = append(want, "RESUME", "STOP")
	}
	others.Wait()
	// Every event comes before the answer to the command that caused it; Close returns when all are delivered.
	_ = c.Close()
	if got := strings.Join(seen, " "); got != strings.Join(want, " ") {
		t.Errorf("the events are %s", got)
	}
}

func commandFromEvent(t *testing.T, socket string) {
	answered := make(chan error, 1)
	var c *qmp.Client
	ready := make(chan struct{})
	c = dial(t, socket, func(e qmp.Event) {
		if e.Name == "RESUME" {
			<-ready
			answered <- c.Execute(context.Background(), "stop", nil, nil)
		}
	})
	close(ready)
	if err := c.Execute(t.Context(), "cont", nil, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the receiver waits for ever")
	}
}

func end(t *testing.T, socket string) {
	var last qmp.Event
	c := dial(t, socket, func(e qmp.Event) { last = e })
	if err := c.Execute(t.Context(), "quit", nil, nil); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if !errors.Is(c.Err(), io.EOF) {
		t.Errorf("the connection ended with %v", c.Err())
	}
	_ = c.Close()
	if last.Name != "SHUTDOWN" || !strings.Contains(string(last.Data), "host-qmp-quit") {
		t.Errorf("the last event is %s %s", last.Name, last.Data)
	}
	if err := c.Execute(t.Context(), "query-status", nil, nil); !errors.Is(err, io.EOF) {
		t.Errorf("a command after the end: %v", err)
	}
}

func TestACommandEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	socket := listen(t, func(conn net.Conn) {
		fmt.Fprintln(conn, `{"QMP": {}}`)
		reader := bufio.NewReader(conn)
		if _, err := reader.ReadString('\n'); err != nil {
			return
		}
		fmt.Fprintln(conn, `{"return": {}, "id": 1}`)
		// It hangs here; then it answers late, and then the next command.
		_, _ = reader.ReadString('\n')
		cancel()
		_, _ = reader.ReadString('\n')
		fmt.Fprintln(conn, `{"return": {"late": true}, "id": 2}`)
		fmt.Fprintln(conn, `{"return": {"late": false}, "id": 3}`)
		_, _ = reader.ReadString('\n')
	})
	c := dial(t, socket, nil)
	if err := c.Execute(ctx, "hang", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	var answer struct{ Late *bool }
	if err := c.Execute(t.Context(), "next", nil, &answer); err != nil || answer.Late == nil || *answer.Late {
		t.Errorf("the next command gets %+v, %v", answer, err)
	}
}

// A QEMU that a guest controls stops reading: a caller must continue at its deadline.
func TestAQEMUThatDoesNotReadHoldsNobody(t *testing.T) {
	socket := listen(t, func(conn net.Conn) {
		fmt.Fprintln(conn, `{"QMP": {}}`)
		_, _ = conn.Read(make([]byte, 1<<10))
		fmt.Fprintln(conn, `{"return": {}, "id": 1}`)
		<-t.Context().Done()
	})
	raw, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, err := qmp.New(t.Context(), &cutWriter{Conn: raw, cut: cancel}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Execute(ctx, "long", strings.Repeat("x", longWrite), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the command ended with %v", err)
	}
	<-c.Done()
	if err := c.Execute(t.Context(), "next", nil, nil); err == nil {
		t.Error("half a command was followed by another one")
	}
}

// longWrite is more than a socket holds.
const longWrite = 4 << 20

type cutWriter struct {
	net.Conn
	cut func()
}

func (w *cutWriter) Write(p []byte) (int, error) {
	if len(p) > longWrite {
		w.cut()
	}
	return w.Conn.Write(p)
}

func TestAFloodOfEventsEndsTheConnection(t *testing.T) {
	stuck := make(chan struct{})
	defer close(stuck)
	socket := listen(t, func(conn net.Conn) {
		fmt.Fprintln(conn, `{"QMP": {}}`)
		_, _ = conn.Read(make([]byte, 1<<10))
		fmt.Fprintln(conn, `{"return": {}, "id": 1}`)
		line := fmt.Sprintf(`{"event": "STOP", "data": {"x": %q}}`, strings.Repeat("x", 1<<20))
		for {
			if _, err := fmt.Fprintln(conn, line); err != nil {
				return
			}
		}
	})
	c, err := qmp.Dial(t.Context(), socket, func(qmp.Event) { <-stuck })
	if err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if err := c.Err(); err == nil || !strings.Contains(err.Error(), "more events than can be processed") {
		t.Errorf("the connection ended with %v", err)
	}
}

func TestTheHandshakeFails(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(net.Conn)
		want  string
	}{
		"the peer hangs up":           {func(net.Conn) {}, "reading QEMU's greeting: EOF"},
		"the peer is something else":  {func(c net.Conn) { fmt.Fprintln(c, `{"hello": 1}`) }, "does not speak QMP"},
		"the peer talks nonsense":     {func(c net.Conn) { fmt.Fprintln(c, "220 smtp") }, "reading QEMU's greeting"},
		"the peer says nothing":       {func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }, "waiting for QEMU's greeting"},
		"the peer ends after a hello": {func(c net.Conn) { fmt.Fprintln(c, `{"QMP": {}}`) }, "QMP qmp_capabilities"},
	} {
		t.Run(name, func(t *testing.T) {
			limit := patience
			if name == "the peer says nothing" {
				limit = 2 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := qmp.Dial(ctx, listen(t, c.serve), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if _, err := qmp.Dial(t.Context(), filepath.Join(t.TempDir(), "none"), nil); err == nil {
		t.Error("a socket that does not exist")
	}
}

func TestCloseEndsWaitingCommands(t *testing.T) {
	asked := make(chan struct{})
	socket := listen(t, func(conn net.Conn) {
		fmt.Fprintln(conn, `{"QMP": {}}`)
		reader := bufio.NewReader(conn)
		_, _ = reader.ReadString('\n')
		fmt.Fprintln(conn, `{"return": {}, "id": 1}`)
		_, _ = reader.ReadString('\n')
		close(asked)
		_, _ = reader.ReadString(0)
	})
	c := dial(t, socket, nil)
	failed := make(chan error)
	go func() { failed <- c.Execute(context.Background(), "wait", nil, nil) }()
	<-asked
	_ = c.Close()
	if err := <-failed; !errors.Is(err, qmp.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// A broken peer may send anything.
func FuzzPeer(f *testing.F) {
	f.Add([]byte(`{"QMP": {}}` + "\n" + `{"return": {}, "id": 1}` + "\n" + `{"event": "STOP"}`))
	f.Add([]byte(`{"QMP": []}{"id": 1, "error": null}{"return": 7, "id": 1}[]`))
	f.Fuzz(func(t *testing.T, said []byte) {
		near, far := net.Pipe()
		go func() {
			_, _ = far.Write(said)
			_ = far.Close()
		}()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		c, err := qmp.New(t.Context(), near, func(qmp.Event) {})
		if err == nil {
			_ = c.Execute(t.Context(), "query-status", nil, nil)
			_ = c.Close()
		}
	})
}
