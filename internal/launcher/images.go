package launcher

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/qemu/qcow2"
)

const (
	formatRaw   = "raw"
	formatQCOW2 = "qcow2"
)

const (
	minBlock     = 512
	maxBlock     = 32 << 10
	defaultBlock = 4096
)

// prepare can be repeated, since it never overwrites a file.
func prepare(images []launch.Image) ([]launch.PreparedImage, error) {
	prepared := make([]launch.PreparedImage, 0, len(images))
	for _, image := range images {
		p, err := prepareOne(image)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", image.Name, err)
		}
		prepared = append(prepared, p)
	}
	return prepared, nil
}

func prepareOne(image launch.Image) (launch.PreparedImage, error) {
	p := launch.PreparedImage{Name: image.Name, VirtualSize: image.Size}
	if image.Source != "" || image.Device != "" {
		if err := inspect(image, &p); err != nil {
			return p, err
		}
	}
	written := p.Source
	if image.Overlay != "" {
		size, err := overlay(image.Overlay, qcow2.Image{
			VirtualSize: p.VirtualSize, Backing: p.Source, BackingFormat: p.SourceFormat,
		})
		if err != nil {
			return p, err
		}
		p.Overlay, p.VirtualSize = image.Overlay, size
		written = image.Overlay
	}
	if fd, err := syscall.Open(written, syscall.O_RDONLY|syscall.O_DIRECT|syscall.O_CLOEXEC, 0); err == nil {
		_ = syscall.Close(fd)
		p.DirectIO = true
	}
	return p, nil
}

func inspect(image launch.Image, p *launch.PreparedImage) error {
	path, err := find(image)
	if err == nil && image.Root != "" && path != image.Device {
		path, err = within(image.Root, path)
	}
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the disk: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("inspecting the disk: %w", err)
	}
	p.Source, p.SourceFormat = path, image.Format
	p.BlockDevice = info.Mode().Type() == os.ModeDevice
	if p.VirtualSize, err = f.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("measuring the disk: %w", err)
	}
	if p.BlockDevice {
		p.LogicalBlock, p.PhysicalBlock = blockSize(f, ioctlLogicalBlockSize), blockSize(f, ioctlPhysicalBlockSize)
	} else {
		// A file has the only size of its file system.
		size := defaultBlock
		var s syscall.Statfs_t
		if syscall.Fstatfs(int(f.Fd()), &s) == nil {
			size = usable(int(s.Bsize))
		}
		p.LogicalBlock, p.PhysicalBlock = size, size
	}
	if p.SourceFormat != formatRaw {
		return probe(f, p)
	}
	return nil
}

func probe(f *os.File, p *launch.PreparedImage) error {
	header, err := qcow2.Read(f)
	switch {
	case errors.Is(err, qcow2.ErrNotQCOW2) && p.SourceFormat == "":
		p.SourceFormat = formatRaw
		return nil
	case err != nil:
		return err
	}
	if err := header.Check(); err != nil {
		return err
	}
	p.SourceFormat, p.VirtualSize = formatQCOW2, header.VirtualSize
	return nil
}

// find returns the device if it exists, else the file, or the only regular file in the directory.
func find(image launch.Image) (string, error) {
	if image.Device != "" {
		if info, err := os.Stat(image.Device); err == nil && info.Mode().Type() == os.ModeDevice {
			return image.Device, nil
		}
	}
	info, err := os.Stat(image.Source)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", absent(image)
	case err != nil:
		return "", fmt.Errorf("finding the disk: %w", err)
	case info.Mode().IsRegular(), info.Mode().Type() == os.ModeDevice:
		return image.Source, nil
	case !info.IsDir():
		return "", fmt.Errorf("%s is neither a file nor a block device", image.Source)
	}
	entries, err := os.ReadDir(image.Source)
	if err != nil {
		return "", fmt.Errorf("finding the disk: %w", err)
	}
	var found string
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if found != "" {
			return "", fmt.Errorf("there is more than one file in %s: %s and %s", image.Source, found, e.Name())
		}
		found = e.Name()
	}
	if found == "" {
		return "", fmt.Errorf("there is no file in %s", image.Source)
	}
	return filepath.Join(image.Source, found), nil
}

// within resolves a path's symlinks, none of which may lead out of root.
func within(root, path string) (string, error) {
	realRoot, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", fmt.Errorf("finding the volume: %w", err)
	}
	realPath, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("finding the disk: %w", err)
	}
	rel, err := filepath.Rel(realRoot, realPath)
	if err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("%s is a symlink that leads out of its volume", strings.TrimPrefix(path, root))
	}
	return filepath.Join(root, rel), nil
}

// absent returns the error for a missing file, without virt-launcher's mount point, which users don't know. Only
// containerDisks have no format.
func absent(image launch.Image) error {
	inside := strings.TrimPrefix(image.Source, layout.VolumeDir(image.Name))
	switch {
	case image.Format != "":
		return fmt.Errorf("it has no file %s", inside)
	case inside == "/"+layout.ContainerDiskDir:
		return fmt.Errorf("its container image has no folder %s: put the disk there, as the only file, "+
			"raw or qcow2, or name its path in containerDisk.path", inside)
	}
	return fmt.Errorf("its container image has no %s, where containerDisk.path says that the disk is", inside)
}

// overlay creates the qcow2 file if it is missing, and returns its virtual size. Only a complete file gets its name.
func overlay(path string, image qcow2.Image) (int64, error) {
	if f, err := os.Open(path); err == nil {
		defer f.Close()
		header, err := qcow2.Read(f)
		if err != nil {
			return 0, fmt.Errorf("inspecting the overlay: %w", err)
		}
		return header.VirtualSize, nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return 0, fmt.Errorf("making the overlay: %w", err)
	}
	defer f.Close()
	err = qcow2.Create(f, image)
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("making the overlay: %w", err), os.Remove(f.Name()))
	}
	header, err := qcow2.Read(f)
	if err != nil {
		return 0, fmt.Errorf("reading the overlay back: %w", err)
	}
	return header.VirtualSize, nil
}

const (
	ioctlLogicalBlockSize  = 0x1268 // BLKSSZGET
	ioctlPhysicalBlockSize = 0x127b // BLKPBSZGET
)

func blockSize(f *os.File, request uintptr) int {
	var size int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return defaultBlock
	}
	return usable(int(size))
}

// usable returns defaultBlock for a size that no QEMU disk can have: network file systems report mebibytes.
func usable(size int) int {
	if size < minBlock || size > maxBlock || size&(size-1) != 0 {
		return defaultBlock
	}
	return size
}
