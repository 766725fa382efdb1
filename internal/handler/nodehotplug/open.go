package nodehotplug

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/handler/podpath"
)

// Request asks for a disk.
type Request struct {
	Volume, Claim string
	ReadOnly      bool
	Size          int64 // of a new image, in bytes; 0 for the claim's capacity
	// Capacity returns a claim's capacity in bytes, for an image without a size.
	Capacity func(ctx context.Context, claim string) (int64, error)
	// Tolerated is the percentage by which such an image may be smaller.
	Tolerated int
}

// Opened is an open disk.
type Opened struct {
	File  *os.File
	Image launch.PreparedImage // as virt-launcher would describe it
}

// OpenDisk opens the disk in a volume that the kubelet has set up. It makes the image in an empty claim.
func OpenDisk(ctx context.Context, volume *podpath.Volume, r Request) (*Opened, error) {
	if volume.Folder == nil {
		return open(volume.Device, r, true)
	}
	raw := disk.Raw{Volume: r.Volume, Name: layout.DiskImage, Claim: r.Claim, ReadOnly: r.ReadOnly, Size: r.Size, Exact: r.Size > 0}
	if err := raw.MakeIn(ctx, volume.Folder, disk.Pod{User: layout.QEMUUser, Capacity: r.Capacity, Tolerated: r.Tolerated}); err != nil {
		return nil, err
	}
	return open(imageOpener(volume), r, false)
}

func imageOpener(volume *podpath.Volume) func(flags int) (*os.File, error) {
	return func(flags int) (*os.File, error) { return volume.Folder.File(layout.DiskImage, flags) }
}

func open(file func(flags int) (*os.File, error), r Request, device bool) (*Opened, error) {
	mode := unix.O_RDWR
	if r.ReadOnly {
		mode = unix.O_RDONLY
	}
	f, err := file(mode)
	if err != nil {
		return nil, err
	}
	o := &Opened{File: f, Image: launch.PreparedImage{Name: r.Volume, SourceFormat: "raw", BlockDevice: device}}
	if err := o.inspect(); err != nil {
		f.Close()
		return nil, err
	}
	if direct, err := file(unix.O_RDONLY | unix.O_DIRECT); err == nil {
		o.Image.DirectIO = true
		direct.Close()
	}
	return o, nil
}

func (o *Opened) inspect() error {
	var err error
	if o.Image.VirtualSize, err = o.File.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("measuring the disk: %w", err)
	}
	if !o.Image.BlockDevice {
		return nil
	}
	raw, err := o.File.SyscallConn()
	if err != nil {
		return fmt.Errorf("asking for the disk's block size: %w", err)
	}
	return raw.Control(func(fd uintptr) {
		// A device without an answer gets QEMU's default block size.
		o.Image.LogicalBlock, _ = unix.IoctlGetInt(int(fd), unix.BLKSSZGET)
		o.Image.PhysicalBlock, _ = unix.IoctlGetInt(int(fd), unix.BLKPBSZGET)
	})
}
