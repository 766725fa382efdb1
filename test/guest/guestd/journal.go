package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// journalBlock is the size of a journal's blocks, and journalBlocks their number, at the end of its disk.
	journalBlock, journalBlocks = 4096, 8
	// journalInterval makes the blocks of a journal those of two seconds, and costs an emulated guest little.
	journalInterval = 250 * time.Millisecond
)

// diskJournal writes numbered blocks to the end of each disk, one place after the other, until it is killed; or it
// prints the checksum of the disk before the journal:
//
//	diskjournal DEVICE...
//	diskjournal -before DEVICE
//
// A block is its number as text, and spaces. When it is on the disk, its number is in /run/journal-NAME. A write that
// fails is noted in /run/journal-failed instead, and the next number is tried.
func diskJournal(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("diskjournal", flag.ContinueOnError)
	before := flags.Bool("before", false, "print the checksum of what is before the journal")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 || *before && flags.NArg() > 1 {
		return fmt.Errorf("name the devices, or the one whose checksum to print")
	}
	if *before {
		sum, err := sumBefore(flags.Arg(0))
		if err == nil {
			fmt.Printf("%016x\n", sum)
		}
		return err
	}
	var all sync.WaitGroup
	failed := make(chan error, flags.NArg())
	for _, device := range flags.Args() {
		all.Go(func() {
			failed <- journal(ctx, device, filepath.Join("/run", "journal-"+filepath.Base(device)), journalInterval)
		})
	}
	all.Wait()
	return <-failed
}

func journal(ctx context.Context, device, done string, interval time.Duration) error {
	disk, first, err := openJournal(device, os.O_WRONLY)
	if err != nil {
		return err
	}
	defer func() { _ = disk.Close() }()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for number := int64(1); ; number++ {
		written := writeNumber(disk, (first+number%journalBlocks)*journalBlock, number)
		if err := record(written, done, number); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func openJournal(device string, mode int) (disk *os.File, first int64, err error) {
	disk, err = os.OpenFile(device, mode, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("opening the disk: %w", err)
	}
	size, err := disk.Seek(0, io.SeekEnd)
	if first = size/journalBlock - journalBlocks; err == nil && first < 0 {
		err = fmt.Errorf("it is too small: %d bytes", size)
	}
	if err != nil {
		_ = disk.Close()
		return nil, 0, fmt.Errorf("looking at %s: %w", device, err)
	}
	return disk, first, nil
}

// sumBefore returns the checksum of a disk before its journal, past all caches.
func sumBefore(device string) (uint64, error) {
	disk, first, err := openJournal(device, os.O_RDONLY|unix.O_DIRECT)
	if err != nil {
		return 0, err
	}
	defer func() { _ = disk.Close() }()
	const most = 1 << 20
	sum, table := uint64(0), crc64.MakeTable(crc64.ECMA)
	for at, memory := int64(0), alignedMemory(most); at < first*journalBlock; {
		part := memory[:min(most, first*journalBlock-at)]
		if _, err := disk.ReadAt(part, at); err != nil {
			return 0, fmt.Errorf("reading the disk: %w", err)
		}
		sum, at = crc64.Update(sum, table, part), at+int64(len(part))
	}
	return sum, nil
}

func writeNumber(disk *os.File, at, number int64) error {
	if _, err := disk.WriteAt(fmt.Appendf(nil, "%-*d", journalBlock, number), at); err != nil {
		return err
	}
	return disk.Sync()
}

func record(written error, done string, number int64) error {
	if written == nil {
		return note(done, number)
	}
	failed, err := os.OpenFile(filepath.Join(filepath.Dir(done), "journal-failed"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(failed, "%s %d: %v\n", filepath.Base(done), number, written)
	return errors.Join(err, failed.Close())
}

// A reader never finds the file empty.
func note(file string, number int64) error {
	if err := os.WriteFile(file+".new", strconv.AppendInt(nil, number, 10), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
