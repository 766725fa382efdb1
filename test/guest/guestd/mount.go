package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mounts lists a guest's mounts beside its root file system, which is the initramfs itself.
var mounts = []struct {
	kind, place, options string
}{
	{"proc", "/proc", ""},
	{"sysfs", "/sys", ""},
	{"devtmpfs", "/dev", ""},
	{"devpts", "/dev/pts", "gid=5,mode=620,ptmxmode=666"},
	{"tmpfs", "/dev/shm", ""},
	{"tmpfs", "/run", "mode=755"},
}

func mountAll() error {
	for _, mount := range mounts {
		if err := os.MkdirAll(mount.place, 0o755); err != nil {
			return fmt.Errorf("making %s: %w", mount.place, err)
		}
		err := unix.Mount(mount.kind, mount.place, mount.kind, 0, mount.options)
		if err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mounting %s: %w", mount.place, err)
		}
	}
	return nil
}

// quietKernel keeps the kernel's messages off the consoles, which tests read. A panic is shown all the same.
func quietKernel() error {
	return os.WriteFile("/proc/sys/kernel/printk", []byte("1"), 0o644)
}
