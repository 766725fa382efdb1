package fill

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/sniff"
	"drydock.dev/drydock/internal/importer/target"
)

// journal is what the next worker needs to go on. It is written after the data that
// it speaks of is on the disk.
type journal struct {
	// Task is what the worker was asked to do; for another task the journal is void. KeepContent
	// makes no difference.
	Task transfer.Task
	// Version and Size are the content's.
	Version string
	Size    int64
	Format  sniff.Format
	// Place is up to where in the content everything is on the disk, Sum the state of
	// the checksum there.
	Place int64
	Sum   []byte
	// Whole says that the disk is whole, and VirtualSize then how large it is.
	Whole       bool
	VirtualSize int64
}

// journalStore is where the journal of a job is kept: beside the disk, or, when that is a
// block claim, where the worker's pod keeps things.
type journalStore struct{ dir, name string }

func journalStoreOf(j *job.Job) journalStore {
	if j.Task.Block {
		return journalStore{dir: j.Places.Work, name: "journal"}
	}
	return journalStore{dir: j.Places.Dir, name: ".disk.img.journal"}
}

func (n journalStore) path() string { return filepath.Join(n.dir, n.name) }

// read reads the journal of a task; nil is none, or none that can be used.
func (n journalStore) read(task transfer.Task) *journal {
	data, err := os.ReadFile(n.path())
	if err != nil {
		return nil
	}
	var was journal
	if err := json.Unmarshal(data, &was); err != nil {
		return nil
	}
	asked, err := json.Marshal(content(task))
	if err != nil {
		return nil
	}
	answered, err := json.Marshal(content(was.Task))
	if err != nil || string(asked) != string(answered) {
		return nil
	}
	return &was
}

// content is a task by what it makes. Whether the worker looks for content before it begins makes no other disk.
func content(task transfer.Task) transfer.Task {
	task.KeepContent = false
	return task
}

// write replaces the journal.
func (n journalStore) write(now journal) error {
	data, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	next := n.path() + ".next"
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	_, err = file.Write(data)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	if err := os.Rename(next, n.path()); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	return target.SyncDir(n.dir)
}

// remove leaves no journal.
func (n journalStore) remove() error {
	_ = os.Remove(n.path() + ".next")
	if err := os.Remove(n.path()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the journal: %w", err)
	}
	return nil
}

// saveSum is the state of a checksum, nil where there is none.
func saveSum(sum hash.Hash) ([]byte, error) {
	if sum == nil {
		return nil, nil
	}
	state, err := sum.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("keeping the checksum's state: %w", err)
	}
	return state, nil
}

// restoreSum gives a checksum the state that it had.
func restoreSum(sum hash.Hash, state []byte) error {
	if sum == nil {
		return nil
	}
	return sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(state)
}
