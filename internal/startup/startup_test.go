package startup

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAPortIsAwaitedUntilItListens(t *testing.T) {
	// A bound socket, on which nothing listens yet, keeps others from the port.
	fd, port := bound(t)
	short, cancel := context.WithTimeout(t.Context(), 3*pause)
	defer cancel()
	if err := Listens(short, port); err == nil || !strings.Contains(err.Error(), "nothing listens at port") {
		t.Fatalf("where nobody listens: %v", err)
	}

	answer := make(chan error, 1)
	go func() { answer <- Listens(t.Context(), port) }()
	select {
	case err := <-answer:
		t.Fatalf("before anybody listened it answered %v", err)
	case <-time.After(3 * pause):
	}
	if err := syscall.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// bound returns a TCP socket that has a port of localhost.
func bound(t *testing.T) (fd, port int) {
	t.Helper()
	localhost, err := net.ResolveTCPAddr("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	family, address := syscall.AF_INET6, syscall.Sockaddr(&syscall.SockaddrInet6{Addr: [16]byte(localhost.IP.To16())})
	if ip := localhost.IP.To4(); ip != nil {
		family, address = syscall.AF_INET, &syscall.SockaddrInet4{Addr: [4]byte(ip)}
	}
	fd, err = syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	err = syscall.Bind(fd, address)
	is, named := syscall.Getsockname(fd)
	if err := errors.Join(err, named); err != nil {
		t.Fatal(err)
	}
	switch is := is.(type) {
	case *syscall.SockaddrInet4:
		return fd, is.Port
	case *syscall.SockaddrInet6:
		return fd, is.Port
	}
	t.Fatalf("its address is %T", is)
	return 0, 0
}
