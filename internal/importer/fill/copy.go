package fill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/convert"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/qcow2"
	"drydock.dev/drydock/internal/importer/sniff"
	"drydock.dev/drydock/internal/importer/target"
)

const step = 1 << 20 // bytes of raw content

// fits refuses a disk that is larger than requested, as far as its first bytes reveal.
func (f *importRun) fits(head []byte, size int64) error {
	disk := size
	switch f.format {
	case sniff.Qcow2:
		header, err := qcow2.Parse(head)
		if err != nil {
			return err
		}
		disk = header.Size
	case sniff.Raw:
	default:
		return nil // QEMU checks the complete image
	}
	return checkSize(disk, f.job.Task.Size)
}

// checkSize refuses a disk by its size, -1 if unknown: an empty one, and one larger than requested.
func checkSize(disk, asked int64) error {
	switch {
	case disk == 0:
		return job.Faultf(transfer.ReasonInvalidImage, "the content is not the image of a disk: the disk in it is empty")
	case disk > asked:
		return job.Faultf(transfer.ReasonTooLarge, "the disk in the image has %s, and %s were asked for: request at least %s",
			job.Bytes(disk), job.Bytes(asked), job.Bytes(disk))
	}
	return nil
}

func (f *importRun) copy(ctx context.Context) error {
	switch f.format {
	case sniff.Raw:
		return f.copyRaw(ctx)
	case sniff.Qcow2:
		return f.copyQcow2(ctx)
	}
	return f.convert(ctx)
}

func (f *importRun) copyRaw(ctx context.Context) error {
	w := newWriters(ctx, f.disk, nil)
	defer w.close()
	for {
		data, err := f.content.Peek(step)
		place := f.content.Place()
		if end := place + int64(len(data)); end > f.job.Task.Size {
			return job.Faultf(transfer.ReasonTooLarge, "the disk in the content has more than the %s that were asked for: request more", job.Bytes(f.job.Task.Size))
		}
		if len(data) > 0 {
			if err := w.put(piece{data: data, at: place}); err != nil {
				return err
			}
			if err := f.content.Discard(int64(len(data))); err != nil {
				return err
			}
			f.advance()
		}
		switch {
		case errors.Is(err, io.EOF):
			return errors.Join(w.settle(), sniff.CheckRaw(f.content.Place()))
		case err != nil:
			return err
		}
		if err := f.points.at(f.content.Place(), w.settle); err != nil {
			return err
		}
	}
}

func (f *importRun) copyQcow2(ctx context.Context) error {
	ranger, ranges := f.from.(job.Ranger)
	ranges = ranges && f.content == f.served && f.reader.Stream().Ranges
	var head []byte
	var err error
	if f.content.Place() == 0 {
		head, err = peek(f.content, qcow2.HeaderSize)
	} else {
		// A resumed window has passed the beginning of the image.
		head = make([]byte, qcow2.HeaderSize)
		err = ranger.ReadRange(ctx, head, 0)
	}
	if err != nil {
		return err
	}
	header, err := qcow2.Parse(head)
	if err != nil {
		return err
	}
	var tables *qcow2.Map
	if ranges {
		tables, err = header.Load(ctx, ranger.ReadRange, f.job.Places.Work)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return job.Faultf(transfer.ReasonInvalidImage, "the qcow2 image is damaged: the file ends before its tables do: it is truncated")
		}
		if err != nil {
			return err
		}
	}
	w := newWriters(ctx, f.disk, header)
	defer w.close()
	sink := func(e qcow2.Extent, data []byte) error {
		p := piece{data: data, at: e.Guest}
		if e.Compressed {
			p.unpacked = header.Length(e)
		}
		return w.put(p)
	}
	feed := &feed{window: f.content, moved: f.advance}
	if tables != nil {
		defer func() { _ = tables.Close() }()
		if err := f.disk.Room(tables.Allocated()); err != nil {
			return err
		}
		err = header.Ordered(feed, tables, sink, func() error { return f.points.at(feed.Place(), w.settle) })
	} else {
		err = f.streamQcow2(header, feed, sink)
	}
	return errors.Join(err, w.settle())
}

func (f *importRun) streamQcow2(header *qcow2.Header, from qcow2.Feed, sink qcow2.Sink) error {
	f.points = checkpoints{} // the stash is lost with the worker
	dir := f.job.Places.Dir
	if f.job.Task.Block {
		dir = f.job.Places.Work
	}
	stash, err := nameless(dir)
	if err != nil {
		return fmt.Errorf("making a file for pieces of the image: %w", err)
	}
	defer func() { _ = stash.Close() }()
	return header.Streamed(from, stash, sink)
}

// spoolDir returns the folder for a whole image: on the claim if that has space for the disk as well, otherwise in
// the worker's pod.
func (f *importRun) spoolDir(size int64) (string, error) {
	if !f.job.Task.Block {
		free, err := target.Free(f.job.Places.Dir)
		if err != nil || free >= 2*size {
			return f.job.Places.Dir, err
		}
	}
	free, err := target.Free(f.job.Places.Work)
	if err == nil && free < size {
		err = job.Faultf(transfer.ReasonNoSpace, "an image of the format %s is kept until it is converted, and there is no space for its %s: "+
			"convert it to qcow2, or request a claim with twice the space", f.format, job.Bytes(size))
	}
	return f.job.Places.Work, err
}

// nameless creates a file that disappears with the worker.
func nameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), dir), nil
}

type feed struct {
	*window
	moved func()
}

func (f *feed) Discard(n int64) error {
	err := f.window.Discard(n)
	f.moved()
	return err
}

// QEMU converts the image after it is complete and verified.
func (f *importRun) convert(ctx context.Context) error {
	f.points = checkpoints{}
	dir, err := f.spoolDir(max(f.reader.Stream().Size, 0))
	if err != nil {
		return err
	}
	spool, err := nameless(dir)
	if err != nil {
		return fmt.Errorf("making a file for the image: %w", err)
	}
	defer func() { _ = spool.Close() }()
	if _, err := io.Copy(spool, &reporting{filling: f}); err != nil {
		return err
	}
	if err := f.settle(ctx); err != nil {
		return err
	}
	f.job.Meter.Step("converting")
	size, err := convert.Inspect(ctx, f.format, spool)
	if err != nil {
		return err
	}
	if err := checkSize(size, f.job.Task.Size); err != nil {
		return err
	}
	return convert.Convert(ctx, f.format, spool, f.disk)
}
