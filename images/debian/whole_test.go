package debian

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestAFolderAppearsOnlyWhenItIsWhole(t *testing.T) {
	cache := t.TempDir()
	folder := filepath.Join(cache, "tree-1")
	broken := errors.New("the disk is full")

	err := Whole(folder, func(made, _ string) error {
		write(t, filepath.Join(made, "half"))
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("the error of what fills it is %v, want %v", err, broken)
	}
	wantNames(t, cache)

	err = Whole(folder, func(made, scratch string) error {
		if _, err := os.Stat(folder); err == nil {
			t.Error("the folder is there before it is whole")
		}
		write(t, filepath.Join(scratch, "part"))
		write(t, filepath.Join(made, "file"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantNames(t, cache, "tree-1")
	wantNames(t, folder, "file")
}

func TestTheSlowerOfTwoMakersIsDropped(t *testing.T) {
	cache := t.TempDir()
	folder := filepath.Join(cache, "tree-1")
	fill := func(name string) func(string, string) error {
		return func(made, _ string) error { return os.WriteFile(filepath.Join(made, name), nil, 0o644) }
	}

	err := Whole(folder, func(made, scratch string) error {
		if err := Whole(folder, fill("first")); err != nil {
			return err
		}
		return fill("second")(made, scratch)
	})
	if err != nil {
		t.Fatal(err)
	}
	wantNames(t, folder, "first")
	wantNames(t, cache, "tree-1")
}

func TestOnlyTheFoldersThatItReplacesAreRemoved(t *testing.T) {
	cache := t.TempDir()
	for _, name := range []string{"guest-a-1", "guest-a-2", "guest-b-1"} {
		if err := os.Mkdir(filepath.Join(cache, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveOthers(filepath.Join(cache, "guest-a-2"), "guest-a-*"); err != nil {
		t.Fatal(err)
	}
	wantNames(t, cache, "guest-a-2", "guest-b-1")
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func wantNames(t *testing.T, folder string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	if len(found) != len(names) {
		t.Fatalf("%s holds %v, want %v", folder, found, names)
	}
	for i := range names {
		if found[i] != names[i] {
			t.Errorf("%s holds %v, want %v", folder, found, names)
		}
	}
}
