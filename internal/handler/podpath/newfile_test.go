package podpath

import (
	"os"
	"path/filepath"
	"testing"
)

func TestANewFileTakesNoNameAway(t *testing.T) {
	needRoot(t)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	d := open(t, folder)
	at := func(name string) string { return filepath.Join(folder, name) }
	if err := os.WriteFile(at("taken"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"link": outside, "dangling": filepath.Join(t.TempDir(), "none")} {
		if err := os.Symlink(target, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"taken", "link", "dangling", "../outside", "."} {
		if f, err := d.NewFile(name, 107, 0o640); err == nil {
			f.Close()
			t.Errorf("%s was made", name)
		}
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "kept" {
		t.Errorf("the file outside has %q (%v)", text, err)
	}
}

func TestANewFileGetsItsName(t *testing.T) {
	needRoot(t)
	folder, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	d := open(t, folder)
	if err := os.WriteFile(outside, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	f, err := d.NewFile("new", 107, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// A rename replaces a link, and does not follow it.
	if err := d.Rename("new", "link"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(filepath.Join(folder, "link")); err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o640 {
		t.Errorf("the file is %v (%v)", info, err)
	}
	for _, name := range []string{"link", "gone"} {
		if err := d.Remove(name); err != nil {
			t.Error(err)
		}
	}
	if d.Rename("link", "../out") == nil || d.Rename("../out", "link") == nil || d.Remove("../outside") == nil {
		t.Error("a name outside of the folder was taken")
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "kept" {
		t.Errorf("the file outside has %q (%v)", text, err)
	}
}
