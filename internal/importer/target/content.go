package target

import (
	"bytes"
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

// The parts of a disk that are searched for content: its beginning, where partition tables, file systems, volume
// groups and images begin, its end, and a piece at each stride between.
const (
	headSize   = 16 << 20
	tailSize   = 1 << 20
	pieceSize  = 64 << 10
	pieceEvery = 64 << 20
)

// checkedName is a file in the worker's pod that records that the target was empty: later content is the worker's.
const checkedName = "target-was-empty"

// RefuseContent returns a Fault if the target has content that the task does not permit to replace.
func RefuseContent(j *job.Job) error {
	checked := filepath.Join(j.Places.Work, checkedName)
	if _, err := os.Stat(checked); !j.Task.KeepContent || err == nil {
		return nil
	}
	what, err := content(j)
	if err != nil {
		return err
	}
	if what != "" {
		return job.Faultf(transfer.ReasonHasContent, "the claim has %s, which the upload would replace: "+
			"ask for that (virtctl image-upload --overwrite), or upload to another claim", what)
	}
	if err := os.WriteFile(checked, nil, 0o600); err != nil {
		return fmt.Errorf("noting that the claim is empty: %w", err)
	}
	return nil
}

// content describes the content that the worker would replace, "" for none.
func content(j *job.Job) (string, error) {
	switch {
	case j.Task.Block:
		has, err := written(j.Places.Device)
		return found(has, "content"), err
	case j.Task.Archive:
		entries, err := os.ReadDir(j.Places.Dir)
		if err != nil {
			return "", fmt.Errorf("looking into the claim: %w", err)
		}
		for _, entry := range entries {
			if entry.Name() != "lost+found" {
				return "files (" + entry.Name() + ")", nil
			}
		}
		return "", nil
	}
	has, err := written(filepath.Join(j.Places.Dir, diskName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return found(has, "a disk ("+diskName+")"), err
}

func found(has bool, what string) string {
	if has {
		return what
	}
	return ""
}

func written(name string) (bool, error) {
	file, err := os.Open(name)
	if err != nil {
		return false, fmt.Errorf("looking for content in the claim: %w", err)
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return false, fmt.Errorf("asking for the size of the claim's disk: %w", err)
	}
	if has, err := nonZero(file, 0, min(size, headSize)); has || err != nil {
		return has, err
	}
	for place := int64(headSize); place < size; place += pieceEvery {
		if place = dataFrom(file, place); place >= size {
			break
		}
		if has, err := nonZero(file, place, min(size-place, pieceSize)); has || err != nil {
			return has, err
		}
	}
	return nonZero(file, max(0, size-tailSize), min(size, tailSize))
}

// dataFrom returns the first offset from place on that may have data, past the end for none. Devices don't report
// holes.
func dataFrom(file *os.File, place int64) int64 {
	next, err := unix.Seek(int(file.Fd()), place, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return 1<<63 - 1
	case err != nil:
		return place
	}
	return next
}

func nonZero(file io.ReaderAt, place, size int64) (bool, error) {
	piece := make([]byte, min(size, int64(len(zeros))))
	for size > 0 {
		n, err := file.ReadAt(piece[:min(size, int64(len(piece)))], place)
		if !bytes.Equal(piece[:n], zeros[:n]) {
			return true, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return false, fmt.Errorf("reading the claim's disk: %w", err)
		}
		if n == 0 {
			return false, nil
		}
		place, size = place+int64(n), size-int64(n)
	}
	return false, nil
}
