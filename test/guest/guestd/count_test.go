package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// countIn waits until a file has at least a number, and returns the file's number.
func countIn(t *testing.T, name string, least int, ended <-chan error) int {
	t.Helper()
	for {
		text, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if len(text) > 0 {
			number, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatalf("%s has %q", name, text)
			}
			if number >= least {
				return number
			}
		}
		select {
		case err := <-ended:
			t.Fatalf("it has ended by itself: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
}

// The first file is read before and after the second, whose number must lie between: at most one behind.
func TestFilesAreCountedOnInTurn(t *testing.T) {
	folder := t.TempDir()
	names := []string{filepath.Join(folder, "one"), filepath.Join(folder, "two")}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- diskCount(ctx, names) }()
	for least := 1; least <= 10; least++ {
		before := countIn(t, names[0], least, ended)
		second := countIn(t, names[1], 1, ended)
		after := countIn(t, names[0], least, ended)
		if second < before-1 || second > after {
			t.Errorf("the second file is at %d while the first goes from %d to %d", second, before, after)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if one, two := countIn(t, names[0], 10, nil), countIn(t, names[1], 10, nil); one != two {
		t.Errorf("at the end the files are at %d and %d", one, two)
	}
}

func TestACountNeedsFiles(t *testing.T) {
	if err := diskCount(t.Context(), nil); err == nil {
		t.Error("no file was accepted")
	}
	if err := diskCount(t.Context(), []string{filepath.Join(t.TempDir(), "no", "folder")}); err == nil {
		t.Error("a file in no folder was accepted")
	}
}
