package fill

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/archive"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/pull"
	"drydock.dev/drydock/internal/importer/sniff"
	"drydock.dev/drydock/internal/importer/target"
	"drydock.dev/drydock/internal/importer/unpack"
)

// Fill makes the disk of a job out of the content of a source. The target is whole
// when it answers without an error; errors are Faults where the owner can do
// something about it, and leave nothing that looks like a whole disk. A one-shot source
// that failed may be followed by another one: nothing of the first is kept.
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

// spaceFault gives a full disk its reason, wherever it was met.
func spaceFault(err error) error {
	var fault *job.Fault
	if err == nil || errors.As(err, &fault) || !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	return job.Faultf(transfer.ReasonNoSpace, "there is no space left for the import: request a larger claim (%w)", err)
}

// importRun is one run of Fill.
type importRun struct {
	job     *job.Job
	from    job.Source
	journal journalStore
	sum     checksum
	result  transfer.Result

	reader *pull.Reader
	// served is the content as the source serves it, content the same decompressed.
	served, content *window
	unpacker        io.Closer
	format          sniff.Format
	disk            *target.Disk
	points          checkpoints
	// kept says that a journal is or may be there.
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

// resume takes up the work where an earlier worker left it, if the content is the same.
func (f *importRun) resume(ctx context.Context, was *journal) (bool, error) {
	ranger, can := f.from.(job.Ranger)
	if !can {
		return false, nil
	}
	now, err := ranger.Stat(ctx)
	if err != nil {
		return false, err
	}
	if !now.Ranges || now.Version == "" || now.Version != was.Version || now.Size != was.Size {
		return false, nil
	}
	disk, err := target.Open(f.job, true)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	f.disk, f.kept = disk, true
	if f.sum.Hash != nil {
		if err := restoreSum(f.sum.Hash, was.Sum); err != nil {
			return false, err
		}
	}
	if err := f.open(ctx, was.Place); err != nil {
		return false, err
	}
	f.content, f.format = f.served, was.Format
	f.result.Resumed = was.Place
	f.watch(*was)
	return true, nil
}

// open opens the source.
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

// begin starts from nothing. The disk is opened, and emptied, only when the content
// has shown that it can be one.
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

// recognize finds out what the content is, and refuses what is no disk, or none that
// fits.
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

// watch keeps a journal from now on.
func (f *importRun) watch(base journal) {
	f.kept = true
	f.points = newCheckpoints(f.disk, f.journal, base, f.sum.Hash)
}

// unpack puts a decompressor between what is served and the content.
func (f *importRun) unpack(ctx context.Context, compression sniff.Compression) ([]byte, error) {
	unpacked, err := unpack.Open(ctx, compression, f.served)
	if err != nil {
		return nil, err
	}
	f.unpacker = unpacked
	f.content = newWindow(&bounded{from: unpacked, left: bound(f.job.Task.Size)}, 0, nil)
	return peek(f.content, sniff.HeadSize)
}

// bound is how much may come out of compressed content for a disk of a size: twice the
// disk and something for tables.
func bound(size int64) int64 { return 2*min(size, 1<<60) + 1<<30 }

// bounded ends content of which far more comes than can be meant.
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

// peek shows the beginning of content, which may be short.
func peek(w *window, n int) ([]byte, error) {
	head, err := w.Peek(n)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return head, nil
}

// finish makes the disk whole: all of the content was there and is what it must be.
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

// settle reads the content to its end and asks whether it is the right one.
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

// finishAgain does what was left to do when the disk was whole.
func (f *importRun) finishAgain(was *journal) error {
	f.result.VirtualSize, f.result.Resumed = was.VirtualSize, was.VirtualSize
	if f.job.Task.Block || target.Whole(f.job) {
		return f.forget()
	}
	disk, err := target.Open(f.job, true)
	if err != nil {
		return err
	}
	f.disk, f.kept = disk, true
	return f.name()
}

// name gives the disk its name.
func (f *importRun) name() error {
	disk := f.disk
	f.disk = nil
	if err := disk.Finish(); err != nil {
		return err
	}
	return f.forget()
}

// forget removes the journal of a whole disk. That of a device is all that says so, and
// goes with the pod.
func (f *importRun) forget() error {
	if f.job.Task.Block {
		return nil
	}
	return f.journal.remove()
}

// end leaves the disk as an error demands: what a later worker can go on with stays,
// everything else goes.
func (f *importRun) end(err error) error {
	if f.unpacker != nil {
		_ = f.unpacker.Close() // what it had to say, it said to its reader
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
			return nil // what an earlier worker left may still be of use
		}
		return errors.Join(f.journal.remove(), target.Remove(f.job))
	}
	waited := f.points.wait()
	if f.kept && !over {
		return errors.Join(waited, f.disk.Close())
	}
	return errors.Join(waited, f.journal.remove(), f.disk.Discard())
}

// advance says how far the work is.
func (f *importRun) advance() {
	f.job.Meter.Advance(f.served.Place(), f.reader.Stream().Size)
}

// unpackArchive unpacks content that is a tar file.
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

// reporting reads the content and says how far it is.
type reporting struct{ filling *importRun }

func (r *reporting) Read(p []byte) (int, error) {
	n, err := r.filling.content.Read(p)
	r.filling.advance()
	return n, err
}
