package host

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/layout"
)

// TakenPorts returns the control plane's ports on which another program listens at all addresses, which include the
// control plane's.
func TakenPorts() []string { return takenPorts(layout.Ports) }

func takenPorts(ports []int) []string {
	var taken []string
	for _, port := range ports {
		if err := bind(port); errors.Is(err, unix.EADDRINUSE) {
			taken = append(taken, fmt.Sprintf("port %d is used by another program (the control plane listens there): end it; `ss -ltnp sport = :%d` names it", port, port))
		}
	}
	return taken
}

// An unused address of 127.0.0.0/8 conflicts only with a program that listens at all addresses. It is bound without
// listening, so that clusters that start at the same time don't take each other for that program.
func bind(port int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // nobody has connected
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	return unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 77, 77, 77}})
}
