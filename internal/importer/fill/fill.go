package fill

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/archive"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/pull"
	"drydock.dev/drydock/internal/importer/sniff"
	"drydock.dev/drydock/internal/importer/target"
	"drydock.dev/drydock/internal/importer/unpack"
)

// Fill makes the disk of a job from the content of a source. Without an error the target is complete; after one nothing
// looks complete. An error is a Fault if the owner can act on it. After a one-shot source another may follow: nothing of
// the first is kept.
func Fill(ctx context.Context, j *job.Job, from job.Source) (transfer.Result, error) {
	f := &importRun{job: j, from: from, journal: journalStoreOf(j)}
	err := f.fill(ctx)
	if f.reader != nil {
		f.result.Read = f.reader.Total()
	}
	err = errors.Join(err, f.end(err))
	return f.result, spaceFault(err)
}

// Blank makes an empty disk.
func Blank(j *job.Job) (transfer.Result, error) {
	disk, err := target.Open(j, false)
	if err != nil {
		return transfer.Result{}, spaceFault(err)
	}
	if err := disk.Finish(); err != nil {
		return transfer.Result{}, spaceFault(errors.Join(err, disk.Discard()))
	}
	return transfer.Result{VirtualSize: disk.Size()}, nil
}

func spaceFault(err error) error {
	var fault *job.Fault
	if err == nil || errors.As(err, &fault) || !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	return job.Faultf(transfer.ReasonNoSpace, "there is no space left for the import: request a larger claim (%w)", err)
}

type importRun struct {
	job     *job.Job
	from    job.Source
	journal journalStore
	sum     checksum
	result  transfer.Result

	reader *pull.Reader
	// content is served after decompression.
	served, content *window
	unpacker        io.Closer
	format          sniff.Format
	disk            *target.Disk
	points          checkpoints
	// kept means that a journal may exist.
	kept bool
}

func (f *importRun) fill(ctx context.Context) error {
	var err error
	if f.sum, err = parseChecksum(f.job.Task.Checksum); err != nil {
		return err
	}
	if f.job.Task.Archive {
		return f.unpackArchive(ctx)
	}
	was := f.journal.read(f.job.Task)
	if was != nil && was.Whole {
		return f.finishAgain(was)
	}
	resumed := false
	if was != nil {
		if resumed, err = f.resume(ctx, was); err != nil {
			return err
		}
	}
	if !resumed {
		if err := f.begin(ctx); err != nil {
			return err
		}
	}
	if err := f.copy(ctx); err != nil {
		return err
	}
	return f.finish(ctx)
}

func (f *importRun) open(ctx context.Context, place int64) error {
	f.job.Meter.Step("connecting to the source")
	var options []pull.Option
	if stall := f.job.Stall(); stall > 0 {
		options = append(options, pull.Stall(stall))
	}
	reader, err := pull.Open(ctx, f.from, place, options...)
	if err != nil {
		return err
	}
	f.reader = reader
	f.served = newWindow(reader, place, f.sum.Hash)
	f.advance()
	f.job.Meter.Step("copying")
	return nil
}

// begin opens and empties the disk only after it has recognized the head of the content.
func (f *importRun) begin(ctx context.Context) error {
	if err := f.open(ctx, 0); err != nil {
		return err
	}
	head, err := peek(f.served, sniff.HeadSize)
	if err != nil {
		return err
	}
	f.content = f.served
	if err := f.recognize(ctx, head); err != nil {
		return err
	}
	if err := f.journal.remove(); err != nil {
		return err
	}
	if f.disk, err = target.Open(f.job, false); err != nil {
		return err
	}
	if stream := f.reader.Stream(); f.content == f.served && stream.Ranges && stream.Version != "" {
		f.watch(journal{Task: f.job.Task, Version: stream.Version, Size: stream.Size, Format: f.format})
	}
	return nil
}

func (f *importRun) recognize(ctx context.Context, head []byte) (err error) {
	stream := f.reader.Stream()
	size := stream.Size
	if stream.Raw {
		f.format = sniff.Raw
		return errors.Join(sniff.CheckRaw(size), f.fits(head, size))
	}
	if compression := sniff.CompressionOf(head); compression != sniff.None {
		size = -1
		if head, err = f.unpack(ctx, compression); err != nil {
			return err
		}
	}
	if f.format, err = sniff.FormatOf(head, size); err != nil {
		return err
	}
	return f.fits(head, size)
}

func (f *importRun) unpack(ctx context.Context, compression sniff.Compression) ([]byte, error) {
	unpacked, err := unpack.Open(ctx, compression, f.served)
	if err != nil {
		return nil, err
	}
	f.unpacker = unpacked
	// Enough for any image of the disk: twice the disk, and space for tables.
	most := 2*min(f.job.Task.Size, 1<<60) + 1<<30
	f.content = newWindow(&bounded{from: unpacked, left: most}, 0, nil)
	return peek(f.content, sniff.HeadSize)
}

type bounded struct {
	from io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, job.Faultf(transfer.ReasonInvalidImage, "the compressed content grows to far more than the disk that was asked for: it is a decompression bomb")
	}
	return n, err
}

func peek(w *window, n int) ([]byte, error) {
	head, err := w.Peek(n)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return head, nil
}

func (f *importRun) finish(ctx context.Context) error {
	if err := f.settle(ctx); err != nil {
		return err
	}
	if err := f.points.wait(); err != nil {
		return err
	}
	f.job.Meter.Step("finishing")
	if err := f.disk.Sync(); err != nil {
		return err
	}
	f.result.VirtualSize = f.disk.Size()
	whole := journal{Task: f.job.Task, Whole: true, VirtualSize: f.disk.Size()}
	if err := f.journal.write(whole); err != nil {
		return err
	}
	f.kept = true
	return f.name()
}

func (f *importRun) settle(ctx context.Context) error {
	if f.content != f.served {
		if err := f.content.drain(); err != nil {
			return err
		}
	}
	if err := f.served.drain(); err != nil {
		return err
	}
	f.advance()
	if err := f.sum.verify(); err != nil {
		return err
	}
	return f.from.Verify(ctx)
}

func (f *importRun) name() error {
	disk := f.disk
	f.disk = nil
	if err := disk.Finish(); err != nil {
		return err
	}
	return f.forget()
}

// end cleans up after an error: it keeps only a state that a later worker can continue.
func (f *importRun) end(err error) error {
	if f.unpacker != nil {
		_ = f.unpacker.Close() // its reader has had its error
	}
	if f.reader != nil {
		_ = f.reader.Close()
	}
	if err == nil {
		return nil
	}
	reason := job.FaultOf(err).Reason
	over := reason.Permanent() || reason == transfer.ReasonNoSpace
	if f.disk == nil {
		if !over {
			return nil // an earlier worker's state may be useful
		}
		return errors.Join(f.journal.remove(), target.Remove(f.job))
	}
	waited := f.points.wait()
	if f.kept && !over {
		return errors.Join(waited, f.disk.Close())
	}
	return errors.Join(waited, f.journal.remove(), f.disk.Discard())
}

func (f *importRun) advance() {
	f.job.Meter.Advance(f.served.Place(), f.reader.Stream().Size)
}

func (f *importRun) unpackArchive(ctx context.Context) error {
	if f.job.Task.Block {
		return job.Faultf(transfer.ReasonInvalidImage, "an archive can only be unpacked into a claim with a file system")
	}
	if err := f.open(ctx, 0); err != nil {
		return err
	}
	head, err := peek(f.served, sniff.HeadSize)
	if err != nil {
		return err
	}
	f.content = f.served
	if compression := sniff.CompressionOf(head); compression != sniff.None {
		if _, err := f.unpack(ctx, compression); err != nil {
			return err
		}
	}
	unpacked, err := archive.Unpack(&reporting{filling: f}, f.job.Places.Dir, f.job.Task.Size)
	if err != nil {
		return errors.Join(err, archive.Clear(f.job.Places.Dir))
	}
	f.result.VirtualSize = unpacked
	if err := f.settle(ctx); err != nil {
		return errors.Join(err, archive.Clear(f.job.Places.Dir))
	}
	return target.SyncDir(f.job.Places.Dir)
}

type reporting struct{ filling *importRun }

func (r *reporting) Read(p []byte) (int, error) {
	n, err := r.filling.content.Read(p)
	r.filling.advance()
	return n, err
}
