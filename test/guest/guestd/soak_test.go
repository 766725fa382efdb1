package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The file system supports direct access.
func soakFile(t *testing.T, size int64) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestASoakOfAGoodDiskFindsNothing(t *testing.T) {
	// The limit grows until even a busy machine writes a second time.
	for limit := 300 * time.Millisecond; ; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		var log bytes.Buffer
		report, err := soak(ctx, soakFile(t, 3*soakBlock), &log)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if report.writes < 2 && limit < time.Minute {
			continue
		}
		if report.writes < 2 || report.errors != 0 {
			t.Errorf("got %+v and the log %q", report, &log)
		}
		return
	}
}

func TestASoakSeesABlockThatDoesNotHoldWhatWasWritten(t *testing.T) {
	disk, err := os.OpenFile(soakFile(t, 3*soakBlock), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = disk.Close() }()
	// It accepts writes and stores none.
	lossy, err := os.OpenFile("/dev/zero", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lossy.Close() }()
	block := alignedBlock()
	fillBlock(block, 7)
	if err := writeAndCompare(disk, soakBlock, block, alignedBlock()); err != nil {
		t.Errorf("a good disk: %v", err)
	}
	err = compareRead(lossy, soakBlock, block, alignedBlock())
	if err == nil || !strings.Contains(err.Error(), "holds number 0") {
		t.Errorf("a disk that lost the write: got %v", err)
	}
}

func TestASoakRefusesADiskThatHoldsNoBlock(t *testing.T) {
	if _, err := soak(t.Context(), soakFile(t, 100), &bytes.Buffer{}); err == nil {
		t.Error("a disk of 100 bytes was accepted")
	}
}
