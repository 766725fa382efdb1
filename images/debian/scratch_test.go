package debian

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLeftoversOfKilledProcessesAreRemoved(t *testing.T) {
	parent := t.TempDir()
	for _, name := range []string{"part-1", "other-1"} {
		if err := os.MkdirAll(filepath.Join(parent, name, "deep"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(parent, "part-file"))
	first, removeFirst, err := Scratch(parent, "part-")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(first, "file"))
	// The first folder is in use, and stays.
	second, removeSecond, err := Scratch(parent, "part-")
	if err != nil {
		t.Fatal(err)
	}
	wantNames(t, first, "file")
	if first == second {
		t.Error("two processes have one folder")
	}
	removeFirst()
	removeSecond()
	wantNames(t, parent, "other-1", "part-file")
}

func TestAFolderThatWasRemovedIsNotLocked(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "folder")
	if _, err := lockFolder(folder); !os.IsNotExist(err) {
		t.Errorf("without the folder: %v", err)
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, again := range []bool{false, true} {
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		if again {
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := stillThere(f, folder); !os.IsNotExist(err) {
			t.Errorf("removed, and made again: %t: %v", again, err)
		}
	}
}
