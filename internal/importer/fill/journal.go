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

// journal is the state from which the next worker continues. It is written after its data is on the disk.
type journal struct {
	// Task is the worker's task; the journal is void for another one. KeepContent is ignored.
	Task    transfer.Task
	Version string
	Size    int64
	Format  sniff.Format
	// Place is the offset up to which the content is on the disk, Sum the state of the checksum there.
	Place int64
	Sum   []byte
	// Whole means that the disk is complete, with the size VirtualSize.
	Whole       bool
	VirtualSize int64
}

// journalStore is the location of a journal: beside the disk, or, for a block claim, in the worker's pod.
type journalStore struct{ dir, name string }

func journalStoreOf(j *job.Job) journalStore {
	if j.Task.Block {
		return journalStore{dir: j.Places.Work, name: "journal"}
	}
	return journalStore{dir: j.Places.Dir, name: ".disk.img.journal"}
}

func (n journalStore) path() string { return filepath.Join(n.dir, n.name) }

// read returns the journal of a task, nil for none or an unusable one.
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

// content leaves out KeepContent, which does not affect the disk.
func content(task transfer.Task) transfer.Task {
	task.KeepContent = false
	return task
}

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

func (n journalStore) remove() error {
	_ = os.Remove(n.path() + ".next")
	if err := os.Remove(n.path()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the journal: %w", err)
	}
	return nil
}

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
