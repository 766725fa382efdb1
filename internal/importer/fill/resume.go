package fill

import (
	"context"
	"encoding"
	"errors"
	"os"

	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/target"
)

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
		if err := f.sum.Hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(was.Sum); err != nil {
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

func (f *importRun) watch(base journal) {
	f.kept = true
	// A distance of 1/128 of the content, and 3/128 at most, keeps the repeated transfer below 5 %, including buffered data.
	every := min(max(base.Size/128, 64<<10), 256<<20)
	f.points = checkpoints{made: true, disk: f.disk, journal: f.journal, base: base, sum: f.sum.Hash, every: every, most: 3 * every, safe: base.Place}
}

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

// forget removes the journal of a complete disk. A device's is the only record that it is complete, and ends with the
// pod.
func (f *importRun) forget() error {
	if f.job.Task.Block {
		return nil
	}
	return f.journal.remove()
}
