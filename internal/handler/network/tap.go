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

// TapCommand is the subcommand of virt-handler's program that makes a tap.
const (
	TapCommand = "make-tap"
	tapQueues  = "--multi-queue"
)

const tapTimeout = 20 * time.Second

const maxTapError = 4096 // bytes of error output

// TapChild makes taps in a child process: SELinux labels a tap with its maker's context, and no other may open it.
type TapChild struct {
	// Enter sets the SELinux context of the thread's next exec.
	Enter func() error
	// Open opens the pod's /dev/net/tun, which the child can use under the pod's context. The thread is in the pod's
	// network namespace, because the tap is made where its device was opened.
	Open func() (*os.File, error)
}

// make makes a tap in the calling thread's network namespace. The thread must end afterwards: it executes everything
// under the SELinux context.
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
	cmd.Env = []string{} // the pod gets nothing of virt-handler's
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

type bounded struct{ bytes.Buffer }

func (b *bounded) Write(data []byte) (int, error) {
	b.Buffer.Write(data[:min(len(data), max(0, maxTapError-b.Len()))])
	return len(data), nil
}

// RunTapCommand is the program of a TapChild. args follow the subcommand's name.
func RunTapCommand(args []string) error {
	if len(args) == 0 || len(args) > 2 || len(args) == 2 && args[1] != tapQueues {
		return errors.New("the arguments are the name of a tap and perhaps " + tapQueues + "; virt-handler runs this, not a user")
	}
	const device = 3
	return makeTap(device, args[0], len(args) == 2)
}

func makeTapHere(name string, multiQueue bool) error {
	fd, err := unix.Open(layout.TUNDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening /dev/net/tun: %w", err)
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
	// Until here a half-made tap disappears with this process.
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("keeping it: %w", err)
	}
	return nil
}
