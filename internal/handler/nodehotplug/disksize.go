package nodehotplug

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/handler/podpath"
)

// SizeFor returns the size for a claim's disk in bytes: the device's or, for an image, the room in its file system.
func SizeFor(volume *podpath.Volume, capacity int64) (int64, error) {
	if volume.Folder == nil {
		device, err := volume.Device(unix.O_RDONLY)
		if err != nil {
			return 0, err
		}
		defer device.Close()
		size, err := device.Seek(0, io.SeekEnd)
		if err != nil {
			return 0, fmt.Errorf("measuring %s: %w", device.Name(), err)
		}
		return size, nil
	}
	image, err := imageOpener(volume)(unix.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer image.Close()
	allocated, err := allocated(image)
	if err != nil {
		return 0, err
	}
	available, err := volume.Folder.Available()
	if err != nil {
		return 0, err
	}
	return disk.GrownSize(capacity, available+allocated), nil
}

func allocated(f *os.File) (int64, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("looking at %s: %w", f.Name(), err)
	}
	var stat unix.Stat_t
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.Fstat(int(fd), &stat) })
	const unit = 512 // of st_blocks, whatever the file system's block size
	return stat.Blocks * unit, errors.Join(err, failed)
}
