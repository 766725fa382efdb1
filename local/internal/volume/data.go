package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Source is the source of a new volume.
type Source struct {
	Volume
	shelf string
	// path is a file or folder.
	path string
	hold func(context.Context, Volume) (func() error, error)
}

// Key is the source's name for locks.
func (s *Source) Key() string { return filepath.Join(s.shelf, s.Name) }

// FromVolume makes a volume a source.
func (s Store) FromVolume(id string) (*Source, error) { return s.source(volumes, id) }

// FromSnapshot makes a snapshot a source.
func (s Store) FromSnapshot(id string) (*Source, error) { return s.source(snapshots, id) }

func (s Store) source(shelf, id string) (*Source, error) {
	v, err := s.read(shelf, id)
	if err != nil {
		return nil, err
	}
	root, err := s.On(v.Disk)
	if err != nil {
		return nil, err
	}
	return &Source{Volume: v, shelf: shelf, path: filepath.Join(root, shelf, v.Name, dataName), hold: s.Hold}, nil
}

// Fits returns an error if the source does not fit.
func (s *Source) Fits(want Volume) error {
	switch {
	case s.Kind != want.Kind:
		return fmt.Errorf("making a volume of kind %s from %s: %w: that is of kind %s; choose a class that keeps the kind", want.Kind, s.ID(), ErrUnfit, s.Kind)
	case s.Bytes > want.Bytes:
		return fmt.Errorf("making a volume of %d bytes from %s: %w: that has %d bytes; ask for as much", want.Bytes, s.ID(), ErrUnfit, s.Bytes)
	}
	return nil
}

func (s *Source) copyTo(ctx context.Context, data string, want Volume) error {
	if err := s.Fits(want); err != nil {
		return err
	}
	if err := s.copyAtRest(ctx, data); err != nil || s.Kind == Folder {
		return err
	}
	if err := lengthen(data, want.fileBytes()); err != nil || s.Kind == Block {
		return err
	}
	// The source may have been mounted: apply its journal, and grow the filesystem to the new size, before it is
	// mounted.
	err := run(ctx, "e2fsck", "-f", "-y", data)
	var exit *exec.ExitError
	corrected := errors.As(err, &exit) && exit.ExitCode() == 1
	if err != nil && !corrected {
		return err
	}
	return run(ctx, "resize2fs", data)
}

// copyAtRest copies the source while it is frozen, if a node can freeze it.
func (s *Source) copyAtRest(ctx context.Context, data string) error {
	if s.hold == nil || s.shelf != volumes {
		return clone(ctx, s.path, data, s.Kind)
	}
	release, err := s.hold(ctx, s.Volume)
	if err != nil {
		return err
	}
	return errors.Join(clone(ctx, s.path, data, s.Kind), release())
}

func blank(ctx context.Context, data string, v Volume) error {
	if v.Kind == Folder {
		return os.Mkdir(data, 0o755)
	}
	f, err := os.OpenFile(data, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(v.fileBytes()), f.Close()); err != nil || v.Kind == Block {
		return err
	}
	// Page-sized blocks, larger than a small filesystem's default, make direct I/O of disk images efficient. No blocks
	// are reserved for root. The file is all zeros, so inode tables and journal need no initialization.
	return run(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", "-b", strconv.Itoa(blockSize), "-i", "16384",
		"-J", fmt.Sprintf("size=%d", journalBytes(v.Bytes)/unit), "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0", data)
}

func lengthen(data string, bytes int64) error {
	info, err := os.Stat(data)
	if err == nil && info.Size() < bytes {
		err = os.Truncate(data, bytes)
	}
	if err != nil {
		return fmt.Errorf("making %s longer: %w", data, err)
	}
	return nil
}

// clone shares blocks if the filesystem can, and otherwise skips holes.
func clone(ctx context.Context, from, to string, kind Kind) error {
	if kind == Folder {
		return run(ctx, "cp", "-a", "--reflink=auto", "--sparse=auto", "-T", from, to)
	}
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("opening what is to be copied: %w", err)
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("making a copy: %w", err)
	}
	if err := unix.IoctlFileClone(int(target.Fd()), int(source.Fd())); err != nil {
		err = copySparse(ctx, target, source)
		return errors.Join(err, target.Close())
	}
	return target.Close()
}

// chunk is the size of a copy between checks of the context.
const chunk = 64 << 20

// copySparse copies data and skips holes.
func copySparse(ctx context.Context, to, from *os.File) error {
	end, err := from.Seek(0, io.SeekEnd)
	if err == nil {
		err = to.Truncate(end)
	}
	for at := int64(0); err == nil && at < end; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		start, seekErr := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(seekErr, unix.ENXIO) {
			return nil // only a hole is left
		}
		var stop int64
		if err = seekErr; err == nil {
			stop, err = unix.Seek(int(from.Fd()), start, unix.SEEK_HOLE)
		}
		if err == nil {
			stop = min(stop, start+chunk)
			err = copyRange(to, from, start, stop)
			at = stop
		}
	}
	if err != nil {
		return fmt.Errorf("copying %s: %w", from.Name(), err)
	}
	return nil
}

func copyRange(to, from *os.File, start, stop int64) error {
	for source, target := start, start; source < stop; {
		n, err := unix.CopyFileRange(int(from.Fd()), &source, int(to.Fd()), &target, int(stop-source), 0)
		if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			_, err = io.Copy(io.NewOffsetWriter(to, source), io.NewSectionReader(from, source, stop-source))
			return err
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return nil // the file has been truncated
		}
	}
	return nil
}

// The error has the program's output.
func run(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func syncTree(dir string, kind Kind) error {
	if kind == Folder {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Syncfs(int(f.Fd()))
	}
	return errors.Join(syncDir(filepath.Join(dir, dataName)), syncDir(dir))
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("syncing %s: %w", path, err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("syncing %s: %w", path, err)
	}
	return nil
}
