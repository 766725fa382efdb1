package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/contracts/layout"
)

// TapCommand is the subcommand of virt-handler's program that makes a tap; tapQueues is
// its flag for one with several queues.
const (
	TapCommand = "make-tap"
	tapQueues  = "--multi-queue"
)

// tapTimeout bounds a program that makes one tap.
const tapTimeout = 20 * time.Second

// maxTapError bounds what is read of the program's complaints.
const maxTapError = 4096

// TapChild has taps made by a program that virt-handler runs, instead of by
// virt-handler itself: SELinux labels a tap with the context of the process that makes
// it, and no other may open it later.
type TapChild struct {
	// Enter sets the context of what the calling thread executes next.
	Enter func() error
	// Open opens the pod's own /dev/net/tun, so that the program can use it under the
	// pod's context. It is called by a thread in the pod's network namespace: a tap is
	// made in the one that its device was opened in.
	Open func() (*os.File, error)
}

// make makes a tap in the calling thread's network namespace. The thread must end afterwards: whatever it executes runs under the
// context.
func (c *TapChild) make(name string, multiQueue bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), tapTimeout)
	defer cancel()
	args := []string{TapCommand, name}
	if multiQueue {
		args = append(args, tapQueues)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	device, err := c.Open()
	if err != nil {
		return err
	}
	defer device.Close()
	cmd.ExtraFiles = []*os.File{device}
	cmd.Env = []string{} // nothing of virt-handler's is the pod's
	complaint := &bounded{}
	cmd.Stderr = complaint
	if err := c.Enter(); err != nil {
		return err
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s %s under the launcher's SELinux context: %w: %s",
			TapCommand, name, err, strings.TrimSpace(complaint.String()))
	}
	return nil
}

// bounded keeps the beginning of what is written.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(data []byte) (int, error) {
	b.Buffer.Write(data[:min(len(data), max(0, maxTapError-b.Len()))])
	return len(data), nil
}

// RunTapCommand is the program that a TapChild runs. args follow the subcommand's name.
func RunTapCommand(args []string) error {
	if len(args) == 0 || len(args) > 2 || len(args) == 2 && args[1] != tapQueues {
		return errors.New("the arguments are the name of a tap and perhaps " + tapQueues + "; virt-handler runs this, not a user")
	}
	// The first of the files that are passed on.
	const device = 3
	return makeTap(device, args[0], len(args) == 2)
}

// openTunDevice opens the node's own /dev/net/tun.
func openTunDevice() (int, error) {
	fd, err := unix.Open(layout.TUNDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("opening /dev/net/tun: %w", err)
	}
	return fd, nil
}

// makeTapHere makes a tap in the calling thread's network namespace.
func makeTapHere(name string, multiQueue bool) error {
	fd, err := openTunDevice()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return makeTap(fd, name, multiQueue)
}

// makeTap makes a tap in the network namespace in which /dev/net/tun was opened.
func makeTap(fd int, name string, multiQueue bool) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if multiQueue {
		flags |= unix.IFF_MULTI_QUEUE
	}
	request.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return fmt.Errorf("creating it: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOWNER, layout.QEMUUser); err != nil {
		return fmt.Errorf("giving it to user %d: %w", layout.QEMUUser, err)
	}
	// Only now does it outlive this process, so that what was made halfway
	// goes by itself.
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("keeping it: %w", err)
	}
	return nil
}
