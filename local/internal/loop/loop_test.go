//go:build system

package loop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/loop/looptest"
)

func image(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func attach(t *testing.T, file string, mode Mode) *os.File {
	t.Helper()
	f, err := Attach(file, mode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // most tests have closed it
	return f
}

// One device has the tag, one the file's path, and one is stacked on the first; the neighbor's must stay.
func TestDetachTakesWhatIsOurs(t *testing.T) {
	ours, theirs := t.TempDir(), t.TempDir()
	tag := fmt.Sprintf("drydock:test-%d", os.Getpid())
	tagged := attach(t, image(t, theirs, "tagged"), Mode{Tag: tag + "/node1/1"})
	inFolder := attach(t, image(t, ours, "in-folder"), Mode{Tag: "somebody"})
	stacked := attach(t, tagged.Name(), Mode{})
	neighbor := attach(t, image(t, theirs, "neighbor"), Mode{Tag: tag + "x/node1/1"})
	want := []string{stacked.Name(), tagged.Name(), inFolder.Name()}
	for _, f := range []*os.File{tagged, inFolder, stacked, neighbor} {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Under(tag, ours)
	if err != nil || len(got) != 3 || got[0] != stacked.Name() || !slices.Contains(got, want[1]) || !slices.Contains(got, want[2]) {
		t.Errorf("ours are %q, want the stacked one first of %q: %v", got, want, err)
	}
	if err := Detach(context.Background(), tag, ours); err != nil {
		t.Error(err)
	}
	for tag, want := range map[string]int{tag + "/node1/1": 0, tag + "x/node1/1": 1} {
		if found, err := Find(tag); err != nil || len(found) != want {
			t.Errorf("after Detach %d devices have the tag %s, want %d: %v", len(found), tag, want, err)
		}
	}
	if err := Free(tag + "x/node1/1"); err != nil {
		t.Error(err)
	}
	looptest.AwaitNone(t, func() ([]string, error) { return Find(tag + "x/node1/1") })
}

// A found device is gone, and its number now has another file: that one must stay.
func TestADeviceThatIsAnothersByNowIsLeftAlone(t *testing.T) {
	tag := fmt.Sprintf("drydock:another-%d", os.Getpid())
	f := attach(t, image(t, t.TempDir(), "file"), Mode{Tag: tag})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := withTag(tag)
	if err != nil || len(found) != 1 {
		t.Fatalf("there are %v: %v", found, err)
	}
	for what, change := range map[string]func(*device){
		"another owner":       func(d *device) { d.info.File_name[0]++ },
		"another file":        func(d *device) { d.info.Inode++ },
		"another file system": func(d *device) { d.info.Device++ },
	} {
		before := found[0]
		change(&before)
		if err := before.free(); err != nil {
			t.Error(err)
		}
		if now, err := Find(tag); err != nil || len(now) != 1 {
			t.Errorf("a device that had %s when it was looked at was detached: %v", what, err)
		}
	}
	if err := found[0].free(); err != nil {
		t.Error(err)
	}
	looptest.AwaitNone(t, func() ([]string, error) { return Find(tag) })
	if err := found[0].free(); err != nil {
		t.Errorf("a device that is free already: %v", err)
	}
}

func TestAutoClearGoesWithItsLastUser(t *testing.T) {
	tag := fmt.Sprintf("drydock:auto-%d", os.Getpid())
	f := attach(t, image(t, t.TempDir(), "file"), Mode{Tag: tag, AutoClear: true})
	if found, err := Find(tag); err != nil || len(found) != 1 {
		t.Errorf("while it is open there are %q: %v", found, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Detach(context.Background(), tag, t.TempDir()); err != nil {
		t.Error(err)
	}
}

func TestGrow(t *testing.T) {
	tag := fmt.Sprintf("drydock:grow-%d", os.Getpid())
	file := image(t, t.TempDir(), "file")
	f := attach(t, file, Mode{Tag: tag, AutoClear: true})
	if err := os.Truncate(file, 2<<20); err != nil {
		t.Fatal(err)
	}
	if err := Grow(f.Name()); err != nil {
		t.Fatal(err)
	}
	if end, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_END); err != nil || end != 2<<20 {
		t.Errorf("the device has %d bytes: %v", end, err)
	}
}

func TestTagsThatTheKernelWouldCut(t *testing.T) {
	_, err := Attach(image(t, t.TempDir(), "file"), Mode{Tag: strings.Repeat("x", 64)})
	if err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a tag of 64 bytes: %v", err)
	}
}
