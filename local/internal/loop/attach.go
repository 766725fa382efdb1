package loop

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Mode has a new device's options.
type Mode struct {
	// Tag names owner and purpose, in at most 63 bytes.
	Tag string
	// AutoClear frees the device with its last user.
	AutoClear bool
	ReadOnly  bool
}

// attempts limits the retries after losing a free device to another program.
const attempts = 64

// Attach creates a loop device, with direct I/O if the file's filesystem supports it. The result keeps it open: with
// AutoClear it would be freed before its use.
func Attach(file string, mode Mode) (*os.File, error) {
	if len(mode.Tag) >= len(unix.LoopInfo64{}.File_name) {
		return nil, fmt.Errorf("making a loop device of %s: the tag %q is too long for the kernel", file, mode.Tag)
	}
	flags := os.O_RDWR
	if mode.ReadOnly {
		flags = os.O_RDONLY
	}
	backing, err := os.OpenFile(file, flags, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the volume's file: %w", err)
	}
	defer backing.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("asking for a loop device: %w", err)
	}
	defer control.Close()
	for range attempts {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("asking for a loop device: %w", err)
		}
		device, err := configure(fmt.Sprintf("/dev/loop%d", number), backing, mode)
		if taken(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("making a loop device of %s: %w", file, err)
		}
		return device, nil
	}
	return nil, fmt.Errorf("making a loop device of %s: every free one was taken by others, %d times", file, attempts)
}

// taken reports whether another program was faster. It may be detaching its file again: then the device can't be
// opened (ENXIO).
func taken(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENXIO) }

// configure sets up the device in one step, so that it never exists without its tag.
func configure(path string, backing *os.File, mode Mode) (*os.File, error) {
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	config := unix.LoopConfig{Fd: uint32(backing.Fd())}
	config.Info.Flags = unix.LO_FLAGS_DIRECT_IO
	if mode.AutoClear {
		config.Info.Flags |= unix.LO_FLAGS_AUTOCLEAR
	}
	if mode.ReadOnly {
		config.Info.Flags |= unix.LO_FLAGS_READ_ONLY
	}
	copy(config.Info.File_name[:], mode.Tag)
	if err := unix.IoctlLoopConfigure(int(device.Fd()), &config); err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return device, nil
}

// Find returns the devices with exactly this tag.
func Find(tag string) ([]string, error) {
	found, err := withTag(tag)
	return paths(found), err
}

func withTag(tag string) ([]device, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(d device) bool { return d.tag() != tag }), nil
}

// Grow makes a device as large as its file.
func Grow(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening the loop device %s: %w", path, err)
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("growing the loop device %s: %w", path, err)
	}
	return nil
}
