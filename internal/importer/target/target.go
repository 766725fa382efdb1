package target

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

const (
	diskName = "disk.img"
	partName = ".disk.img.part"
)

// Disk is a disk that is being made. WriteAt is safe for concurrent use.
type Disk struct {
	file *os.File
	// dir is the folder of the file, "" for a block device.
	dir  string
	size int64
}

// Open opens the disk of a job. With keep, an earlier worker's data must exist, and stays. Otherwise the disk reads
// as zero, and an earlier worker's complete disk is removed: its pod was deleted before its result was read, and a
// claim may not have the space for both.
func Open(j *job.Job, keep bool) (*Disk, error) {
	if j.Task.Size <= 0 {
		return nil, errors.New("opening the target: the task names no size")
	}
	if j.Task.Block {
		return openDevice(j, keep)
	}
	flags := os.O_RDWR
	if !keep {
		flags |= os.O_CREATE | os.O_TRUNC
		if err := os.Remove(filepath.Join(j.Places.Dir, diskName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("removing the disk of an earlier worker from the claim: %w", err)
		}
	}
	file, err := os.OpenFile(filepath.Join(j.Places.Dir, partName), flags, 0o660)
	if err != nil {
		return nil, fmt.Errorf("opening the disk in the claim: %w", err)
	}
	d := &Disk{file: file, dir: j.Places.Dir, size: j.Task.Size}
	// The pod's group must have write access, whatever the umask: a launcher may run as another user.
	if err = file.Chmod(0o660); err == nil {
		err = d.shape(j.Task.Preallocate)
	}
	if err != nil {
		return nil, errors.Join(err, d.Discard())
	}
	return d, nil
}

func (d *Disk) shape(preallocate bool) error {
	if err := d.file.Truncate(d.size); err != nil {
		return d.failed("growing the disk", err)
	}
	if !preallocate {
		return nil
	}
	err := unix.Fallocate(int(d.file.Fd()), 0, 0, d.size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = writeZeros(d.file, d.size)
	}
	if err != nil {
		return d.failed("reserving the disk's space", err)
	}
	return nil
}

// openDevice opens a block claim, which reads as zero unless keep is set.
func openDevice(j *job.Job, keep bool) (*Disk, error) {
	file, err := os.OpenFile(j.Places.Device, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the block claim: %w", err)
	}
	d := &Disk{file: file, size: j.Task.Size}
	capacity, err := file.Seek(0, io.SeekEnd)
	switch {
	case err != nil:
		err = fmt.Errorf("asking for the size of the block claim: %w", err)
	case capacity < j.Task.Size:
		err = job.Faultf(transfer.ReasonNoSpace, "the block claim has %s and the disk %s: request a larger claim",
			job.Bytes(capacity), job.Bytes(j.Task.Size))
	case !keep:
		err = d.clear(min(capacity, (d.size+grain-1)/grain*grain), j.Task.Preallocate)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return d, nil
}

// clear makes a device read as zero up to an offset: it deallocates the blocks, or the kernel or the worker writes
// zeros.
func (d *Disk) clear(end int64, preallocate bool) error {
	const step = 1 << 30 // the worker can be stopped between steps
	modes := []uint32{unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE}
	if preallocate {
		modes = modes[1:]
	}
	for _, mode := range modes {
		var err error
		for from := int64(0); from < end && err == nil; from += step {
			err = unix.Fallocate(int(d.file.Fd()), mode, from, min(step, end-from))
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) {
			return d.failed("clearing the block claim", err)
		}
	}
	if err := writeZeros(d.file, end); err != nil {
		return d.failed("clearing the block claim", err)
	}
	return nil
}

func writeZeros(file *os.File, size int64) error {
	for from := int64(0); from < size; from += int64(len(zeros)) {
		if _, err := file.WriteAt(zeros[:min(int64(len(zeros)), size-from)], from); err != nil {
			return err
		}
	}
	return nil
}

// Size returns the size in bytes.
func (d *Disk) Size() int64 { return d.size }

// Name returns the path that is being written.
func (d *Disk) Name() string { return d.file.Name() }

// Device reports whether the disk is a block device.
func (d *Disk) Device() bool { return d.dir == "" }

// Room returns a Fault if the claim's file system lacks the space for the disk, an earlier worker's data included.
func (d *Disk) Room(need int64) error {
	if d.Device() {
		return nil
	}
	free, err := Free(d.dir)
	if err != nil {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(d.file.Fd()), &stat); err != nil {
		return fmt.Errorf("asking how much of the disk is written: %w", err)
	}
	if have := free + stat.Blocks*512; need > have {
		return job.Faultf(transfer.ReasonNoSpace, "the disk takes %s and the claim's file system has %s free: request a larger claim",
			job.Bytes(need), job.Bytes(have))
	}
	return nil
}

// Free returns a file system's free bytes.
func Free(dir string) (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, fmt.Errorf("asking for the free space of %s: %w", dir, err)
	}
	return int64(stat.Bavail) * stat.Bsize, nil
}

// Sync flushes the written data.
func (d *Disk) Sync() error {
	if err := unix.Fdatasync(int(d.file.Fd())); err != nil {
		return d.failed("bringing data to the disk", err)
	}
	return nil
}

// Finish completes the disk. Nothing may be written afterwards.
func (d *Disk) Finish() error {
	if err := d.file.Sync(); err != nil {
		return d.failed("bringing the disk to the claim", err)
	}
	if err := d.file.Close(); err != nil {
		return d.failed("closing the disk", err)
	}
	if d.Device() {
		return nil
	}
	if err := os.Rename(filepath.Join(d.dir, partName), filepath.Join(d.dir, diskName)); err != nil {
		return fmt.Errorf("giving the disk its name: %w", err)
	}
	return SyncDir(d.dir)
}

// Close leaves the disk for a later worker.
func (d *Disk) Close() error { return d.file.Close() }

// Discard removes the disk. A block claim's content stays until the next worker clears it: its DataVolume has not
// succeeded, so nobody reads it.
func (d *Disk) Discard() error {
	err := d.file.Close()
	if d.Device() {
		return err
	}
	return errors.Join(err, os.Remove(filepath.Join(d.dir, partName)))
}

// Remove removes an earlier worker's unfinished disk.
func Remove(j *job.Job) error {
	if j.Task.Block {
		return nil
	}
	if err := os.Remove(filepath.Join(j.Places.Dir, partName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing an unfinished disk: %w", err)
	}
	return nil
}

// Whole reports whether the disk has its final name, which a device never has.
func Whole(j *job.Job) bool {
	if j.Task.Block {
		return false
	}
	_, err := os.Stat(filepath.Join(j.Places.Dir, diskName))
	if err != nil {
		return false
	}
	_, err = os.Stat(filepath.Join(j.Places.Dir, partName))
	return errors.Is(err, fs.ErrNotExist)
}

// SyncDir flushes a folder's names.
func SyncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("opening the folder %s: %w", name, err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("bringing the names in %s to the disk: %w", name, err)
	}
	return nil
}

func (d *Disk) failed(doing string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return job.Faultf(transfer.ReasonNoSpace, "the claim is full: request a larger one (%s: %w)", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
