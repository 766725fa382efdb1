package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

const countInterval = 100 * time.Millisecond

// diskCount writes a number to each file in turn, then the next number, until it is killed:
//
//	diskcount FILE...
//
// A number is written back before the next file gets it, so at any moment each file is at most one behind the file
// before it, and the first one at most one ahead of the last.
func diskCount(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("name the files")
	}
	var files []*os.File
	for _, name := range names {
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return fmt.Errorf("opening what to count on: %w", err)
		}
		defer func() { _ = file.Close() }()
		files = append(files, file)
	}
	ticker := time.NewTicker(countInterval)
	defer ticker.Stop()
	for number := 1; ; number++ {
		for _, file := range files {
			if err := countTo(file, number); err != nil {
				return fmt.Errorf("counting to %d: %w", number, err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// The text has the same length each time, so that a reader never finds a rest of an earlier one.
func countTo(file *os.File, number int) error {
	if _, err := file.WriteAt(fmt.Appendf(nil, "%-15d\n", number), 0); err != nil {
		return err
	}
	return file.Sync()
}
