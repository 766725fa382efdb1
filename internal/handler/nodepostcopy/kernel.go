package nodepostcopy

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// actions exists in a kernel that filters system calls.
const actions = "/proc/sys/kernel/seccomp/actions_avail"

// Filters reports whether the kernel filters system calls.
func Filters() bool {
	_, err := os.Stat(actions)
	return err == nil
}

// Try requests a userfaultfd as QEMU in a launcher pod does: without capabilities, and also for page faults in the
// kernel, which KVM and vhost cause in the guest's memory.
func Try() error {
	tried := make(chan error)
	go func() {
		// The thread, which loses its capabilities for good, ends with this goroutine.
		runtime.LockOSThread()
		tried <- tryWithoutCapabilities()
	}()
	return <-tried
}

func tryWithoutCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("trying userfaultfd without capabilities: %w", err)
	}
	fd, _, errno := unix.RawSyscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	switch errno {
	case 0:
		return unix.Close(int(fd))
	case unix.EPERM:
		return errors.New("the kernel refuses userfaultfd to processes without capabilities: set the sysctl vm.unprivileged_userfaultfd to 1")
	case unix.ENOSYS:
		return errors.New("the kernel has no userfaultfd")
	}
	return fmt.Errorf("asking the kernel for userfaultfd: %w", errno)
}
