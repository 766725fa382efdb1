package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/handler/network/dhcp"
)

func inside(namespace *os.File, do func() error) error {
	result := make(chan error, 1)
	go onOwnThread(func() {
		if err := enter(namespace); err != nil {
			result <- fmt.Errorf("entering the pod's network namespace: %w", err)
			return
		}
		result <- do()
	})
	return <-result
}

// enter moves the calling thread into a network namespace.
func enter(namespace *os.File) error {
	raw, err := namespace.SyscallConn()
	if err != nil {
		return err
	}
	var entered error
	err = raw.Control(func(fd uintptr) { entered = unix.Setns(int(fd), unix.CLONE_NEWNET) })
	return errors.Join(err, entered)
}

// onOwnThread calls do on a thread that ends with the calling goroutine: no other goroutine can run on it in a
// foreign namespace.
func onOwnThread(do func()) {
	runtime.LockOSThread() // not unlocked, so the runtime ends the thread
	if unix.Gettid() != unix.Getpid() {
		do()
		return
	}
	// The first thread never ends, and /proc/self shows its namespaces. While it is locked, do runs on another.
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		onOwnThread(do)
	}()
	<-done
}

func openNetlink(namespace *os.File) (*netlink.Handle, error) {
	handle, err := netlink.NewHandleAt(netns.NsHandle(namespace.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening netlink in the pod's network namespace: %w", err)
	}
	return handle, nil
}

// setSysctl writes a sysctl below net, in the calling thread's network namespace, unless it has the value: some are
// read-only in a pod.
func setSysctl(name, value string) error {
	path := filepath.Join("/proc/sys/net", name)
	if current, err := os.ReadFile(path); err == nil && string(current) == value+"\n" {
		return nil
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return fmt.Errorf("setting net/%s to %s: %w", name, value, err)
	}
	return nil
}

func openFrames(namespace *os.File, link netlink.Link) (*os.File, error) {
	filter, err := dhcp.Filter()
	if err != nil {
		return nil, err
	}
	var socket *os.File
	err = inside(namespace, func() error {
		// Protocol 0: the socket receives nothing until the filter is attached.
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		if err := bindFrames(fd, link.Attrs().Index, filter); err != nil {
			_ = unix.Close(fd)
			return err
		}
		socket = os.NewFile(uintptr(fd), link.Attrs().Name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket on %s: %w", link.Attrs().Name, err)
	}
	return socket, nil
}

func bindFrames(fd, link int, filter []bpf.RawInstruction) error {
	program := make([]unix.SockFilter, len(filter))
	for i, instruction := range filter {
		program[i] = unix.SockFilter{Code: instruction.Op, Jt: instruction.Jt, Jf: instruction.Jf, K: instruction.K}
	}
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	if err != nil {
		return fmt.Errorf("attaching the filter: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return fmt.Errorf("ignoring what is sent: %w", err)
	}
	// ETH_P_ALL in network byte order: the bridge takes frames before sockets for one protocol see them.
	address := &unix.SockaddrLinklayer{Protocol: unix.ETH_P_ALL << 8, Ifindex: link}
	if err := unix.Bind(fd, address); err != nil {
		return fmt.Errorf("binding: %w", err)
	}
	return nil
}
