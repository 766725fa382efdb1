package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Each block must have the newest number of its place, and the blocks before the journal be unchanged.
func TestAJournalIsInTheLastBlocksOfItsDisk(t *testing.T) {
	disk, done := soakFile(t, 10*journalBlock+512), filepath.Join(t.TempDir(), "done")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- journal(ctx, disk, done, 10*time.Millisecond) }()
	newest := 0
	for newest < 2*journalBlocks {
		text, err := os.ReadFile(done)
		if err == nil {
			newest, err = strconv.Atoi(string(text))
		}
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			t.Fatalf("it has ended by itself: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(disk)
	if err != nil {
		t.Fatal(err)
	}
	if before := strings.Trim(string(text[:2*journalBlock])+string(text[10*journalBlock:]), "\x00"); before != "" {
		t.Errorf("elsewhere on the disk is %.40q", before)
	}
	for place := range journalBlocks {
		block := string(text[(2+place)*journalBlock:][:journalBlock])
		number, err := strconv.Atoi(strings.TrimSpace(block))
		if err != nil || number%journalBlocks != place || number <= newest-journalBlocks {
			t.Errorf("block %d is %.20q, and %d was the newest once (%v)", place, block, newest, err)
		}
	}
}

func TestAJournalNeedsADiskThatHoldsIt(t *testing.T) {
	done := filepath.Join(t.TempDir(), "done")
	if err := journal(t.Context(), soakFile(t, journalBlocks*journalBlock-1), done, time.Millisecond); err == nil {
		t.Error("a disk of seven blocks was accepted")
	}
	if err := diskJournal(t.Context(), nil); err == nil {
		t.Error("no disk was accepted")
	}
}

func TestAJournalRecordsFailedWritesElsewhere(t *testing.T) {
	folder := t.TempDir()
	done := filepath.Join(folder, "journal-vda")
	for number, err := range []error{nil, errors.New("input/output error"), nil, errors.New("no space left on device")} {
		if err := record(err, done, int64(number)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"journal-vda":    "2",
		"journal-failed": "journal-vda 1: input/output error\njournal-vda 3: no space left on device\n",
	} {
		if text, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(text) != want {
			t.Errorf("%s has %q, want %q (%v)", name, text, want, err)
		}
	}
}

// TestWhatIsBeforeAJournalHasOneChecksum changes the journal and the data before it. Only the latter may change the
// checksum.
func TestWhatIsBeforeAJournalHasOneChecksum(t *testing.T) {
	const size = 3<<20 + journalBlocks*journalBlock
	name := soakFile(t, size)
	sum := func() uint64 {
		t.Helper()
		sum, err := sumBefore(name)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	write := func(at int64) {
		t.Helper()
		disk, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = disk.Close() }()
		if _, err := disk.WriteAt([]byte{1}, at); err != nil {
			t.Fatal(err)
		}
		if err := disk.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	before := sum()
	for _, at := range []int64{3 << 20, size - 1} {
		if write(at); sum() != before {
			t.Errorf("the checksum changes with the byte %d, which is the journal's", at)
		}
	}
	for _, at := range []int64{0, 1 << 20, 3<<20 - 1} {
		now := sum()
		if write(at); sum() == now {
			t.Errorf("the checksum does not change with the byte %d", at)
		}
	}
}
