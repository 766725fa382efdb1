package quiesce

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// holding signals the hold's begin and end.
func node(t *testing.T, fails error) (socket string, holding chan bool) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "node.sock")
	holding = make(chan bool, 2)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, socket, func(id string) (func(), error) {
			if id != "node1.v" || fails != nil {
				return nil, errors.Join(fails, errors.New("not "+id))
			}
			holding <- true
			return func() { holding <- false }, nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	for {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close() // the test only waited for it
			return socket, holding
		}
	}
}

func TestHeldUntilReleased(t *testing.T) {
	socket, holding := node(t, nil)
	release, err := Hold(context.Background(), socket, "node1.v")
	if err != nil || !<-holding {
		t.Fatalf("holding: %v", err)
	}
	select {
	case <-holding:
		t.Error("it was let go before it was released")
	default:
	}
	if err := release(); err != nil || <-holding {
		t.Errorf("releasing: %v", err)
	}
}

func TestLetGoWhenTheControllerDies(t *testing.T) {
	socket, holding := node(t, nil)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("node1.v\n")); err != nil || !<-holding {
		t.Fatalf("holding: %v", err)
	}
	_ = conn.Close() // as the death of the process does
	if <-holding {
		t.Error("it is still held")
	}
}

func TestANodeThatDiesMeanwhileSpoilsTheCopy(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "node.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Read(make([]byte, 64)) // the content of the request does not matter
		_, _ = conn.Write([]byte("held\n"))
		_ = conn.Close()
	}()
	release, err := Hold(context.Background(), listener.Addr().String(), "node1.v")
	if err != nil {
		t.Fatal(err)
	}
	if err := release(); err == nil {
		t.Error("the copy counts although the node has died")
	}
}

func TestANodeThatIsOffHoldsNothing(t *testing.T) {
	release, err := Hold(context.Background(), filepath.Join(t.TempDir(), "none.sock"), "node1.v")
	if err != nil || release() != nil {
		t.Errorf("holding a volume of a node that is off: %v", err)
	}
}

func TestWhyItCanNotBeHeldIsTold(t *testing.T) {
	socket, _ := node(t, errors.New("frozen already"))
	if _, err := Hold(context.Background(), socket, "node1.v"); err == nil || !strings.Contains(err.Error(), "frozen already") {
		t.Errorf("holding what can't be held: %v", err)
	}
}
