// Package launchertest is a virt-launcher for tests: it serves the protocol of internal/contracts/launch on a socket,
// starts no QEMU, and follows the test. Only tests may import it.
package launchertest

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/podpath"
)

// Launcher is a virt-launcher in the test's process. Its methods may be called from several goroutines.
type Launcher struct {
	t        testing.TB
	listener net.Listener
	serving  sync.WaitGroup

	mu       sync.Mutex
	state    launch.State
	conn     net.Conn
	requests []launch.Request
	// Started is called with each request to start QEMU, before the answer; its error refuses the request. It must be
	// set before there is a connection.
	Started func(launch.Start) error
	// Recovered is called with each request to recover a post-copy, before the answer. It must be set before there is a
	// connection.
	Recovered func() error
	// Stopped is called with each request to stop QEMU, after the answer.
	Stopped func(launch.Stop)
}

// Private returns the folder of a launcher pod's sockets. pods is a kubelet's folder of pods.
func Private(pods, uid string) string {
	return filepath.Join(pods, uid, podpath.EmptyDir(layout.PrivateVolume))
}

// New starts a virt-launcher with its socket in a new folder. It ends with the test.
func New(t testing.TB, private string) *Launcher {
	t.Helper()
	if err := os.MkdirAll(private, 0o755); err != nil {
		t.Fatal(err)
	}
	l := &Launcher{t: t, state: launch.State{Phase: launch.PhaseWaiting}}
	listener, err := net.Listen("unix", filepath.Join(private, layout.LauncherSocket))
	if err != nil {
		t.Fatal(err)
	}
	l.listener = listener
	l.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.serving.Go(func() { l.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Vanish()
		l.serving.Wait()
	})
	return l
}

// SetState sets the initial state, before there is a connection.
func (l *Launcher) SetState(state launch.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = state
}

// Requests returns the requests answered so far, in order.
func (l *Launcher) Requests() []launch.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]launch.Request(nil), l.requests...)
}

// Connected reports whether virt-handler has connected.
func (l *Launcher) Connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil
}

// Exit reports QEMU's exit and ends the launcher.
func (l *Launcher) Exit(exit launch.Exit) {
	l.mu.Lock()
	l.state = launch.State{Phase: launch.PhaseExited, Exit: &exit}
	if l.conn != nil {
		l.send(l.conn, launch.Message{Event: &launch.Event{Exited: &exit}})
	}
	l.mu.Unlock()
	l.Vanish()
}

// Say sends a message, as a launcher may that its guest has taken over.
func (l *Launcher) Say(message launch.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.send(l.conn, message)
	}
}

// Arrival changes and reports the state of an incoming post-copy.
func (l *Launcher) Arrival(arrival launch.Arrival) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Arrival = arrival
	if l.conn != nil {
		l.send(l.conn, launch.Message{Event: &launch.Event{Arrival: &arrival}})
	}
}

// Vanish ends the launcher without a message. It can be repeated.
func (l *Launcher) Vanish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.listener.Close()
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// The caller holds l.mu. Errors are ignored: the peer may have gone.
func (l *Launcher) send(conn net.Conn, message launch.Message) {
	line, err := json.Marshal(message)
	if err != nil {
		panic("launchertest: " + err.Error())
	}
	_, _ = conn.Write(append(line, '\n'))
}

func (l *Launcher) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	l.mu.Lock()
	if l.conn != nil {
		_ = l.conn.Close()
	}
	l.conn = conn
	l.send(conn, launch.Message{Hello: &launch.Hello{State: l.state}})
	l.mu.Unlock()
	for in := bufio.NewScanner(conn); in.Scan(); {
		var r launch.Request
		if json.Unmarshal(in.Bytes(), &r) != nil {
			return
		}
		l.answer(conn, r)
	}
}

func (l *Launcher) answer(conn net.Conn, r launch.Request) {
	reply := launch.Reply{ID: r.ID}
	if r.Start != nil && l.Started != nil {
		if err := l.Started(*r.Start); err != nil {
			reply.Error = err.Error()
		}
	}
	if r.Recover != nil && l.Recovered != nil {
		if err := l.Recovered(); err != nil {
			reply.Error = err.Error()
		}
	}
	l.mu.Lock()
	l.requests = append(l.requests, r)
	switch {
	case r.Prepare != nil:
		for _, image := range r.Prepare.Images {
			reply.Images = append(reply.Images, launch.PreparedImage{
				Name: image.Name, Source: image.Source, SourceFormat: "raw", Overlay: image.Overlay, VirtualSize: max(image.Size, 1<<20),
			})
		}
	case r.Start != nil && reply.Error == "":
		if l.state.Phase == launch.PhaseWaiting {
			l.state = launch.State{Phase: launch.PhaseRunning, QEMUPID: os.Getpid(), Recovers: l.Recovered != nil}
		}
		state := l.state
		reply.State = &state
	}
	l.send(conn, launch.Message{Reply: &reply})
	l.mu.Unlock()
	if r.Stop != nil && l.Stopped != nil {
		l.Stopped(*r.Stop)
	}
}
