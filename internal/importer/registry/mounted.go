package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

type mounted struct{ dir string }

// open never opens a file outside of the image, whatever links the image has.
func (m *mounted) open() (*os.File, fs.FileInfo, error) {
	root, err := os.OpenRoot(m.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the container image: %w", err)
	}
	defer func() { _ = root.Close() }() // its open files stay open
	var disk string
	err = fs.WalkDir(root.FS(), strings.TrimPrefix(folder, "/"), func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return err
		case err != nil:
			return job.Faultf(transfer.ReasonInvalidImage, "the container image's /%s can't be read: %w", name, err)
		case entry.IsDir():
			return nil
		case !entry.Type().IsRegular():
			return job.Faultf(transfer.ReasonInvalidImage, "the container image's /%s is no file but a link or a device: put the disk itself there", name)
		case disk != "":
			return severalDisks(disk, name)
		}
		disk = name
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) || err == nil && disk == "" {
		err = job.Faultf(transfer.ReasonInvalidImage, "the container image has no disk: there must be one file in its folder /disk")
	}
	if err != nil {
		return nil, nil, err
	}
	file, err := root.Open(disk)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the disk in the container image: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return nil, nil, fmt.Errorf("opening the disk in the container image: %w", err)
	}
	return file, info, nil
}

func streamOf(info fs.FileInfo) job.Stream {
	return job.Stream{Size: info.Size(), Ranges: true, Rewindable: true,
		Version: fmt.Sprintf("%s %d %d", info.Name(), info.Size(), info.ModTime().UnixNano())}
}

// Open implements job.Source.
func (m *mounted) Open(_ context.Context, offset int64) (*job.Stream, error) {
	file, info, err := m.open()
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	stream := streamOf(info)
	stream.Body, stream.Offset = file, offset
	return &stream, nil
}

// Stat implements job.Ranger.
func (m *mounted) Stat(context.Context) (job.Stream, error) {
	file, info, err := m.open()
	if err != nil {
		return job.Stream{}, err
	}
	return streamOf(info), file.Close()
}

// ReadRange implements job.Ranger.
func (m *mounted) ReadRange(_ context.Context, p []byte, offset int64) error {
	file, _, err := m.open()
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.ReadAt(p, offset); errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	} else if err != nil {
		return fmt.Errorf("reading the disk in the container image: %w", err)
	}
	return nil
}

// Verify does nothing: the container runtime has compared the digests.
func (m *mounted) Verify(context.Context) error { return nil }
