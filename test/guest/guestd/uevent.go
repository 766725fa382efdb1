package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

type uevent struct {
	action    string
	devpath   string
	subsystem string
	modalias  string
	iface     string // name of a network card
}

// A message is a head line and then KEY=value, each ended by a zero byte.
func parseUevent(message []byte) uevent {
	var event uevent
	for field := range bytes.SplitSeq(message, []byte{0}) {
		key, value, _ := strings.Cut(string(field), "=")
		switch key {
		case "ACTION":
			event.action = value
		case "DEVPATH":
			event.devpath = value
		case "SUBSYSTEM":
			event.subsystem = value
		case "MODALIAS":
			event.modalias = value
		case "INTERFACE":
			event.iface = value
		}
	}
	return event
}

func listenKernel(protocol int, groups uint32) (*os.File, error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	file := os.NewFile(uintptr(socket), "netlink")
	if err := unix.Bind(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(fmt.Errorf("listening to the kernel: %w", err), file.Close())
	}
	return file, nil
}

func messages(ctx context.Context, socket *os.File, handle func([]byte)) {
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer stop()
	buffer := make([]byte, 64<<10)
	for {
		n, err := socket.Read(buffer)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			continue // messages were lost; later ones still come
		case err != nil:
			return
		}
		handle(buffer[:n])
	}
}
