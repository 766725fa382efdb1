package node

import (
	"fmt"
	"os"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/loop"
)

// FIFREEZE and FITHAW: _IOWR('X', 119 and 120, int).
const (
	freeze = 0xC0045877
	thaw   = 0xC0045878
)

// Hold freezes a volume's filesystem, if it is mounted here: all writes are in its file, and writers wait. Until
// release it is neither mounted nor unmounted.
func (s *Server) Hold(id string) (release func(), err error) {
	unlock, err := s.locks.Lock(id, "")
	if err != nil {
		return nil, err
	}
	devices, err := loop.Find(s.tag(id))
	if err != nil {
		unlock()
		return nil, err
	}
	var mountpoint string
	if len(devices) > 0 {
		mountpoint, err = mountOf(devices[0])
	}
	if err != nil || mountpoint == "" {
		unlock()
		return func() {}, err
	}
	f, err := os.Open(mountpoint)
	if err == nil {
		err = unix.IoctlSetInt(int(f.Fd()), freeze, 0)
	}
	if err != nil {
		unlock()
		return nil, fmt.Errorf("freezing the filesystem at %s: %w", mountpoint, err)
	}
	return func() {
		defer unlock()
		defer f.Close()
		if err := unix.IoctlSetInt(int(f.Fd()), thaw, 0); err != nil {
			fmt.Fprintf(os.Stderr, "thawing the filesystem at %s: %v\n", mountpoint, err)
		}
	}, nil
}

// Thaw thaws filesystems that a killed process has left frozen.
func (s *Server) Thaw() error {
	devices, err := loop.Under(s.Tag, "/dev/null")
	if err != nil {
		return err
	}
	for _, device := range devices {
		mountpoint, err := mountOf(device)
		if err != nil {
			return err
		}
		if mountpoint == "" {
			continue
		}
		f, err := os.Open(mountpoint)
		if err != nil {
			return fmt.Errorf("thawing the filesystem at %s: %w", mountpoint, err)
		}
		_ = unix.IoctlSetInt(int(f.Fd()), thaw, 0) // EINVAL: it was not frozen
		_ = f.Close()                              // opened only for the ioctl
	}
	return nil
}

// mountOf returns the mount point of a device, empty if it is not mounted.
func mountOf(device string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return "", fmt.Errorf("looking at %s: %w", device, err)
	}
	major, minor := int(unix.Major(st.Rdev)), int(unix.Minor(st.Rdev))
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		found := m.Major == major && m.Minor == minor
		return !found, found
	})
	if err != nil {
		return "", fmt.Errorf("reading the mounts: %w", err)
	}
	if len(mounts) == 0 {
		return "", nil
	}
	return mounts[0].Mountpoint, nil
}
