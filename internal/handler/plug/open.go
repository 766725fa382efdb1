package plug

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/launch"
	"drydock.dev/drydock/internal/layout"
)

// Request is a disk to be opened in a holder.
type Request struct {
	Volume, Claim string
	ReadOnly      bool
	// Capacity is the claim's, for an image that is to be made.
	Capacity func(ctx context.Context, claim string) (int64, error)
}

// Opened is a disk that is open.
type Opened struct {
	File *os.File
	// Image says what it is, in the words of virt-launcher's inspection.
	Image launch.PreparedImage
}

// Path is where a holder has a volume: a folder, or a device.
func Path(volume string) string { return path.Join("/path", volume) }

// OpenDisk opens the disk behind a volume in the file system of its holder. In an
// empty claim it makes the image.
func OpenDisk(ctx context.Context, root *podpath.Dir, r Request) (*Opened, error) {
	place := Path(r.Volume)
	isFolder, err := root.IsDir(place)
	if err != nil {
		return nil, err
	}
	if !isFolder {
		return open(root, place, r, true)
	}
	raw := disk.Raw{Volume: r.Volume, Folder: place, Name: layout.DiskImage, Claim: r.Claim, ReadOnly: r.ReadOnly}
	if err := raw.Make(ctx, disk.Pod{Root: root, User: layout.QEMUUser, Capacity: r.Capacity}); err != nil {
		return nil, err
	}
	// Whoever wrote to the claim may have planted a symlink.
	folder, err := root.Strict(place)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return open(folder, layout.DiskImage, r, false)
}

func open(dir *podpath.Dir, name string, r Request, device bool) (*Opened, error) {
	mode := unix.O_RDWR
	if r.ReadOnly {
		mode = unix.O_RDONLY
	}
	f, err := dir.File(name, mode)
	if err != nil {
		return nil, err
	}
	o := &Opened{File: f, Image: launch.PreparedImage{Name: r.Volume, SourceFormat: "raw", BlockDevice: device}}
	if err := o.inspect(); err != nil {
		f.Close()
		return nil, err
	}
	if direct, err := dir.File(name, unix.O_RDONLY|unix.O_DIRECT); err == nil {
		o.Image.DirectIO = true
		direct.Close()
	}
	return o, nil
}

// inspect says what the open file is.
func (o *Opened) inspect() error {
	info, err := o.File.Stat()
	if err != nil {
		return fmt.Errorf("looking at the disk: %w", err)
	}
	kind := info.Mode().Type()
	if o.Image.BlockDevice && kind != os.ModeDevice {
		return fmt.Errorf("%s is no block device", o.File.Name())
	}
	if !o.Image.BlockDevice && kind != 0 {
		return fmt.Errorf("%s is no regular file", o.File.Name())
	}
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
		// A device that does not say has blocks of QEMU's own size.
		o.Image.LogicalBlock, _ = unix.IoctlGetInt(int(fd), unix.BLKSSZGET)
		o.Image.PhysicalBlock, _ = unix.IoctlGetInt(int(fd), unix.BLKPBSZGET)
	})
}
