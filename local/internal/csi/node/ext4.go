package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// prepareExt4 checks a filesystem before it is mounted, and grows it if the volume has grown while
// unmounted.
func prepareExt4(ctx context.Context, device *os.File) error {
	size, blocks, block, err := extent(device)
	if err != nil {
		return err
	}
	if err := fsck(ctx, "-p", device.Name()); err != nil {
		return err
	}
	if size/block <= blocks {
		return nil
	}
	if err := fsck(ctx, "-fp", device.Name()); err != nil {
		return err
	}
	return run(ctx, "resize2fs", device.Name())
}

// fsck runs e2fsck, which repairs without questions.
func fsck(ctx context.Context, how, device string) error {
	err := run(ctx, "e2fsck", how, device)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // errors were corrected
		return nil
	}
	return err
}

func run(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Offsets, magic number and flag of ext4's superblock.
const (
	superblock   = 1024
	blocksLow    = 0x04
	logBlockSize = 0x18
	magic        = 0x38
	features     = 0x60
	blocksHigh   = 0x150
	extMagic     = 0xEF53
	feature64    = 0x80
)

// extent returns the device's size in bytes, and the number and size of its filesystem's blocks.
func extent(device *os.File) (size, blocks, block uint64, err error) {
	end, err := device.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("asking for the size of %s: %w", device.Name(), err)
	}
	sb := make([]byte, 1024)
	if _, err := device.ReadAt(sb, superblock); err != nil {
		return 0, 0, 0, fmt.Errorf("reading the filesystem on %s: %w", device.Name(), err)
	}
	if binary.LittleEndian.Uint16(sb[magic:]) != extMagic {
		return 0, 0, 0, fmt.Errorf("reading the filesystem on %s: there is no ext4; the volume's file was overwritten", device.Name())
	}
	blocks = uint64(binary.LittleEndian.Uint32(sb[blocksLow:]))
	if binary.LittleEndian.Uint32(sb[features:])&feature64 != 0 {
		blocks |= uint64(binary.LittleEndian.Uint32(sb[blocksHigh:])) << 32
	}
	return uint64(end), blocks, 1024 << binary.LittleEndian.Uint32(sb[logBlockSize:]), nil
}

// resizeFS is EXT4_IOC_RESIZE_FS, _IOW('f', 16, __u64).
const resizeFS = 0x40086610

func growExt4(mountpoint, device string) error {
	d, err := os.Open(device)
	if err != nil {
		return fmt.Errorf("opening %s: %w", device, err)
	}
	defer d.Close()
	size, blocks, block, err := extent(d)
	if err != nil || size/block <= blocks {
		return err
	}
	m, err := os.Open(mountpoint)
	if err != nil {
		return fmt.Errorf("opening the filesystem at %s: %w", mountpoint, err)
	}
	defer m.Close()
	want := size / block
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, m.Fd(), resizeFS, uintptr(unsafe.Pointer(&want)))
	switch errno {
	case 0:
		return nil
	case unix.EPERM:
		return fmt.Errorf("growing the filesystem at %s while it is mounted: the kernel asks for CAP_SYS_RESOURCE, which this machine's root does not have; it grows when the volume is mounted the next time, once no pod uses it", mountpoint)
	}
	return fmt.Errorf("growing the filesystem at %s: %w", mountpoint, errno)
}
