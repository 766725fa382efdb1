package downwardmetrics

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"drydock.dev/drydock/internal/launcher/downwardmetrics/metricstest"
)

// image is a disk in memory.
type image []byte

func (i image) write(w Write) { copy(i[w.Offset:], w.Data) }

func TestABlankDiskIsBusy(t *testing.T) {
	disk := make(image, DiskSize)
	disk.write(Blank())
	if _, err := metricstest.Disk(disk); !errors.Is(err, metricstest.ErrBusy) {
		t.Errorf("a reader finds %v", err)
	}
}

// Between any two writes, a reader must be told to wait or read one complete document.
func TestReadersSeeWholeDocuments(t *testing.T) {
	disk, state := make(image, DiskSize), Disk{}
	disk.write(Blank())
	before := ""
	for _, document := range []string{"<metrics>long long</metrics>\n", "<metrics/>\n", "<metrics/>\n", "<metrisc/>\n", ""} {
		writes, err := state.Replace([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		sum := binary.BigEndian.Uint32(disk[sumAt:])
		for n, w := range writes {
			if got, err := metricstest.Disk(disk); n > 0 && !errors.Is(err, metricstest.ErrBusy) || n == 0 && err == nil && string(got) != before {
				t.Errorf("before write %d of %q a reader finds %q, %v", n, document, got, err)
			}
			disk.write(w)
		}
		got, err := metricstest.Disk(disk)
		if err != nil || string(bytes.TrimRight(got, "\n")) != string(bytes.TrimRight([]byte(document), "\n")) {
			t.Errorf("a reader finds %q, %v, want %q", got, err, document)
		}
		if now := binary.BigEndian.Uint32(disk[sumAt:]); now == sum {
			t.Errorf("%q has the sum of the document before, so that a reader takes parts of both for one", document)
		}
		before = string(got)
	}
}

func TestADocumentThatIsTooLongLeavesTheDisk(t *testing.T) {
	var state Disk
	writes, err := state.Replace(bytes.Repeat([]byte("x"), DiskSize-headerSize+1))
	if err == nil || writes != nil {
		t.Errorf("%d writes, %v", len(writes), err)
	}
	if writes, err = state.Replace(bytes.Repeat([]byte("x"), DiskSize-headerSize)); err != nil || len(writes) == 0 {
		t.Errorf("the longest: %d writes, %v", len(writes), err)
	}
}
