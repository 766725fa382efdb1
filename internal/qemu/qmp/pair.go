package qmp

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// SocketPair returns the ends of a connection that no other process can reach: ours, and QEMU's to inherit.
func SocketPair() (net.Conn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making QEMU's monitor: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "monitor")
	file := os.NewFile(uintptr(fds[0]), "monitor")
	defer file.Close()
	ours, err := net.FileConn(file)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("making QEMU's monitor: %w", err)
	}
	return ours, theirs, nil
}
