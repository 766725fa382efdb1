package startup

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

func TestAPortIsAwaitedUntilItListens(t *testing.T) {
	first, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	address := first.Addr().(*net.TCPAddr)
	first.Close()
	short, cancel := context.WithTimeout(t.Context(), 3*pause)
	defer cancel()
	if err := Listens(short, address.Port); err == nil || !strings.Contains(err.Error(), "nothing listens at port") {
		t.Fatalf("where nobody listens: %v", err)
	}

	answer := make(chan error, 1)
	go func() { answer <- Listens(t.Context(), address.Port) }()
	select {
	case err := <-answer:
		t.Fatalf("before anybody listened it answered %v", err)
	case <-time.After(3 * pause):
	}
	second, err := net.Listen("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := <-answer; err != nil {
		t.Error(err)
	}
}
