//go:build system

package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// hostDisk mounts a file system on the host, below a shared mount: under systemd all are shared.
func hostDisk(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	disk := filepath.Join(top, "disk")
	for _, step := range []func() error{
		func() error { return unix.Mount("tmpfs", top, "tmpfs", 0, "") },
		func() error { return unix.Mount("", top, "", unix.MS_SHARED, "") },
		func() error { return os.Mkdir(disk, 0o755) },
		func() error { return unix.Mount("tmpfs", disk, "tmpfs", 0, "") },
	} {
		if err := step(); err != nil {
			t.Fatalf("mounting a file system on the host: %v", err)
		}
	}
	t.Cleanup(func() {
		_ = unix.Unmount(disk, 0) // a test has unmounted it already
		if err := unix.Unmount(top, 0); err != nil {
			t.Errorf("unmounting %s: %v", top, err)
		}
	})
	return disk
}

// The file system was mounted when the nodes started.
func hostUnmounts(t *testing.T, c *cluster, disk string) {
	if seen := c.mounting(disk); len(seen) == 0 {
		t.Fatal("no node had the host's file system when it started: the test shows nothing")
	}
	if err := unix.Unmount(disk, 0); err != nil {
		t.Fatalf("unmounting the host's file system: %v", err)
	}
	if kept := c.mounting(disk); len(kept) > 0 {
		t.Errorf("these processes still have what the host has unmounted: %q", kept)
	}
}

func (c *cluster) mounting(path string) []string {
	c.t.Helper()
	var all []string
	for name, pid := range c.pids() {
		if !strings.Contains(name, "/") {
			continue // it is the host's
		}
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if err != nil {
			c.t.Fatalf("reading the mounts of %s: %v", name, err)
		}
		if strings.Contains(string(mounts), " "+path+" ") {
			all = append(all, name)
		}
	}
	return all
}
