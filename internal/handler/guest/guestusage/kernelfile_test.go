package guestusage

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFileOfTheKernelIsReadWhole(t *testing.T) {
	folder := t.TempDir()
	for _, size := range []int{0, 1, 1023, 1024, 1025, 100_000} {
		path, want := filepath.Join(folder, "file"), []byte(strings.Repeat("x", size))
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readKernelFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("of %d bytes %d were read: %v", size, len(got), err)
		}
	}
	if _, err := readKernelFile(filepath.Join(folder, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := readKernelFile(folder); err == nil {
		t.Error("a folder was read")
	}
}
