package qmp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
)

type line struct {
	Execute   string          `json:"execute"`
	OutOfBand string          `json:"exec-oob"`
	Arguments json.RawMessage `json:"arguments"`
	ID        uint64          `json:"id"`
}

// stuck is a QEMU that answers nothing but commands out of band until it is released.
type stuck struct {
	*qmp.Client
	heard   chan line
	release chan struct{}
}

func newStuck(t *testing.T, capabilities string) *stuck {
	t.Helper()
	s := &stuck{heard: make(chan line, 100), release: make(chan struct{})}
	socket := listen(t, func(conn net.Conn) {
		fmt.Fprintf(conn, `{"QMP": {"capabilities": [%s]}}`+"\n", capabilities)
		var held []line
		lines := make(chan line)
		go func() {
			defer close(lines)
			for in := bufio.NewScanner(conn); in.Scan(); {
				var l line
				if err := json.Unmarshal(in.Bytes(), &l); err != nil {
					t.Error(err)
					return
				}
				lines <- l
			}
		}()
		release := s.release
		for {
			select {
			case l, ok := <-lines:
				if !ok {
					return
				}
				s.heard <- l
				if l.OutOfBand == "" && l.Execute != "qmp_capabilities" && release != nil {
					held = append(held, l)
					continue
				}
				fmt.Fprintf(conn, `{"return": {}, "id": %d}`+"\n", l.ID)
			case <-release:
				release = nil
				for _, l := range held {
					fmt.Fprintf(conn, `{"return": {}, "id": %d}`+"\n", l.ID)
				}
			}
		}
	})
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	if s.Client, err = qmp.NewOutOfBand(t.Context(), conn, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A full queue of commands without answers would keep QEMU from reading the one that helps it.
func TestACommandOutOfBandIsNotKeptBackByOthers(t *testing.T) {
	s := newStuck(t, `"oob"`)
	if l := <-s.heard; l.Execute != "qmp_capabilities" || string(l.Arguments) != `{"enable":["oob"]}` || !s.OutOfBand() {
		t.Fatalf("the handshake is %+v", l)
	}
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if err := s.Execute(ctx, "slow", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()
	}
	if err := s.ExecuteOutOfBand(t.Context(), "help", map[string]any{"x": 1}, nil); err != nil {
		t.Fatal(err)
	}
	if l := <-s.heard; l.Execute != "slow" {
		t.Errorf("the first command is %+v", l)
	}
	if l := <-s.heard; l.OutOfBand != "help" || l.Execute != "" || string(l.Arguments) != `{"x":1}` {
		t.Errorf("the next one is %+v", l)
	}
	close(s.release)
	if err := s.ExecuteAll(t.Context(), qmp.Command{Name: "a"}, qmp.Command{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	if a, b := <-s.heard, <-s.heard; a.Execute != "a" || b.Execute != "b" {
		t.Errorf("after that it hears %+v and %+v", a, b)
	}
}

func TestAWaitForATurnEndsWithTheConnection(t *testing.T) {
	s := newStuck(t, `"oob"`)
	<-s.heard
	failed := make(chan error, 2)
	for range 2 {
		go func() { failed <- s.Execute(context.Background(), "slow", nil, nil) }()
	}
	<-s.heard
	_ = s.Close()
	for range 2 {
		if err := <-failed; !errors.Is(err, qmp.ErrClosed) {
			t.Error(err)
		}
	}
}

func TestAMonitorWithoutCommandsOutOfBand(t *testing.T) {
	s := newStuck(t, "")
	if l := <-s.heard; l.Arguments != nil || s.OutOfBand() {
		t.Errorf("the handshake is %+v", l)
	}
}

// QEMU reads ahead: a second file would replace the first.
func TestAMonitorThatReadsAheadTakesNoFiles(t *testing.T) {
	s := newStuck(t, `"oob"`)
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := s.ExecuteWithFile(t.Context(), "add-fd", nil, f, nil); err == nil || !strings.Contains(err.Error(), "takes no files") {
		t.Errorf("%v", err)
	}
}
