package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

var mountFlags = map[string]uintptr{
	"ro": unix.MS_RDONLY, "noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
	"strictatime": unix.MS_STRICTATIME, "lazytime": unix.MS_LAZYTIME, "sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC,
	"nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC, "nosuid": unix.MS_NOSUID,
}

func mountOptions(options []string) (flags uintptr, data string) {
	var rest []string
	for _, option := range options {
		if bit, ok := mountFlags[option]; ok {
			flags |= bit
		} else if option != "rw" && option != "" {
			rest = append(rest, option)
		}
	}
	return flags, strings.Join(rest, ",")
}

func isMounted(path string) (bool, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking at %s: %w", path, err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(real))
	if err != nil {
		return false, fmt.Errorf("reading the mounts: %w", err)
	}
	return len(mounts) > 0, nil
}

func bind(from, to string, readOnly bool, options []string) error {
	mounted, err := isMounted(to)
	if err != nil || mounted {
		return err
	}
	if err := os.MkdirAll(to, 0o750); err != nil {
		return fmt.Errorf("making the mount point: %w", err)
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", from, err)
	}
	flags, _ := mountOptions(options)
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	if flags == 0 {
		return nil
	}
	// The kernel takes a bind mount's options at a remount only.
	if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return errors.Join(fmt.Errorf("setting the options of %s: %w", to, err), unmount(to))
	}
	return nil
}

func unmount(path string) error {
	for {
		err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil // no mount is left
		case err != nil:
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
}
