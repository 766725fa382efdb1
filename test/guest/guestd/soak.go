package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// soakBlock is the size of one write; it fits every disk's sectors.
	soakBlock = 4096
	// soakInterval is the time between writes.
	soakInterval = 50 * time.Millisecond
	// soakGap is the duration from which a write counts as a gap.
	soakGap = time.Second
)

type soakReport struct {
	writes, errors, gaps int
	longest              time.Duration
}

// diskSoak writes numbered blocks to a disk, past all caches, and reads each one
// back, until it is told to end:
//
//	disksoak [-for DURATION] DEVICE
//
// It prints every error and every write of more than a second at once, and
// the sum at the end, and fails if there was any.
func diskSoak(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("disksoak", flag.ContinueOnError)
	span := flags.Duration("for", 0, "end by itself after this time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("name one device")
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	defer stop()
	if *span > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *span)
		defer cancel()
	}
	report, err := soak(ctx, flags.Arg(0), os.Stdout)
	if err != nil {
		return err
	}
	fmt.Printf("writes=%d errors=%d gaps=%d longest=%dms\n",
		report.writes, report.errors, report.gaps, report.longest.Milliseconds())
	if report.errors > 0 || report.gaps > 0 {
		return fmt.Errorf("%s was not there all the time", flags.Arg(0))
	}
	return nil
}

// soak writes until the context ends. It goes on after an error: the test wants to know how long the disk was away.
func soak(ctx context.Context, device string, log io.Writer) (soakReport, error) {
	var report soakReport
	disk, err := os.OpenFile(device, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		return report, fmt.Errorf("opening the disk: %w", err)
	}
	defer func() { _ = disk.Close() }()
	size, err := disk.Seek(0, io.SeekEnd)
	if err != nil {
		return report, fmt.Errorf("asking for the disk's size: %w", err)
	}
	blocks := uint64(size) / soakBlock
	if blocks == 0 {
		return report, fmt.Errorf("%s is too small: %d bytes", device, size)
	}
	ticker := time.NewTicker(soakInterval)
	defer ticker.Stop()
	written, read := alignedBlock(), alignedBlock()
	for number := uint64(1); ; number++ {
		began := time.Now()
		fillBlock(written, number)
		if err := writeAndCompare(disk, int64(number%blocks)*soakBlock, written, read); err != nil {
			report.errors++
			_, _ = fmt.Fprintf(log, "error write=%d %v\n", number, err)
		}
		report.writes++
		took := time.Since(began)
		report.longest = max(report.longest, took)
		if took > soakGap {
			report.gaps++
			_, _ = fmt.Fprintf(log, "gap write=%d %dms\n", number, took.Milliseconds())
		}
		select {
		case <-ctx.Done():
			return report, nil
		case <-ticker.C:
		}
	}
}

func writeAndCompare(disk *os.File, offset int64, written, read []byte) error {
	if _, err := disk.WriteAt(written, offset); err != nil {
		return err
	}
	if err := disk.Sync(); err != nil {
		return err
	}
	return compareRead(disk, offset, written, read)
}

func compareRead(disk io.ReaderAt, offset int64, written, read []byte) error {
	if _, err := disk.ReadAt(read, offset); err != nil {
		return err
	}
	if !bytes.Equal(written, read) {
		return fmt.Errorf("the block at %d holds number %d", offset, binary.LittleEndian.Uint64(read))
	}
	return nil
}

func fillBlock(block []byte, number uint64) {
	for i := 0; i < len(block); i += 8 {
		binary.LittleEndian.PutUint64(block[i:], number+uint64(i)<<32)
	}
}

func alignedBlock() []byte { return alignedMemory(soakBlock) }

// Direct access needs aligned memory.
func alignedMemory(length int) []byte {
	memory := make([]byte, length+soakBlock)
	start := soakBlock - int(uintptr(unsafe.Pointer(&memory[0]))%soakBlock)
	return memory[start : start+length]
}
