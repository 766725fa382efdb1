package archive

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func TestNoNameLeadsOutOfTheFolder(t *testing.T) {
	for _, hostile := range []string{"", ".", "..", "../../etc/passwd", "/etc/passwd", `..\..\x`, "a/b", ".ssh", "a\x00b", "C:", "a\x1b[2J", "a\u202eb", strings.Repeat("a", 1000)} {
		got := Path("namespaces", hostile, "x.yaml")
		parts := strings.Split(got, "/")
		if len(parts) != 3 || !filepath.IsLocal(got) || strings.HasPrefix(parts[1], ".") || len(parts[1]) > 200 ||
			strings.Trim(got, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/") != "" {
			t.Errorf("%q leads to %q", hostile, got)
		}
	}
	if a, b := Path("a/b"), Path("a_b"); a == b {
		t.Errorf("two names have the path %s", a)
	}
	if got := Path("namespaces", "lab", "kubevirt.io", "virtualmachines", "web-1.example.yaml"); got != "namespaces/lab/kubevirt.io/virtualmachines/web-1.example.yaml" {
		t.Errorf("an ordinary name is changed: %s", got)
	}
}

func add(t *testing.T, w Writer) {
	t.Helper()
	for _, elements := range [][]string{{"diagnosis.txt"}, {"namespaces", "../lab", "a.yaml"}, {"namespaces", "../lab", "b.yaml"}} {
		if err := w.Add([]byte(elements[len(elements)-1]), elements...); err != nil {
			t.Fatal(err)
		}
	}
}

var added = []string{"diagnosis.txt", Path("namespaces", "../lab", "a.yaml"), Path("namespaces", "../lab", "b.yaml")}

func TestAFolder(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out")
	w, err := New(name, false, noon)
	if err != nil {
		t.Fatal(err)
	}
	add(t, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(added, files(t, name)); diff != "" {
		t.Error(diff)
	}
	isPrivate(t, name, 0o700)
	isPrivate(t, filepath.Join(name, added[1]), 0o600)
	if _, err := New(name, true, noon); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a folder with files is used again: %v", err)
	}
}

func TestADiscardedFolderLeavesNothing(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out")
	w, err := New(name, false, noon)
	if err != nil {
		t.Fatal(err)
	}
	add(t, w)
	w.Discard()
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

func TestAFolderThatWasThereStays(t *testing.T) {
	name := t.TempDir()
	w, err := New(name, false, noon)
	if err != nil {
		t.Fatal(err)
	}
	add(t, w)
	if err := os.WriteFile(filepath.Join(name, "namespaces", "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.Discard()
	if diff := cmp.Diff([]string{"namespaces/mine"}, files(t, name)); diff != "" {
		t.Error(diff)
	}
}

func TestALinkInAFolderLeadsNowhere(t *testing.T) {
	outside, name := t.TempDir(), t.TempDir()
	w, err := New(name, false, noon)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Discard()
	if err := os.Symlink(outside, filepath.Join(name, "namespaces")); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(nil, "namespaces", "x"); err == nil || len(files(t, outside)) > 0 {
		t.Errorf("a file was written outside: %v", err)
	}
}

func TestAFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out.tar.gz")
	w, err := New(name, false, noon)
	if err != nil {
		t.Fatal(err)
	}
	add(t, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range added {
		want = append(want, "out/"+name)
	}
	if diff := cmp.Diff(want, entries(t, name)); diff != "" {
		t.Error(diff)
	}
	isPrivate(t, name, 0o600)
}

func TestAFileIsOnlyReplacedWhenAskedAndByACompleteOne(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "out.tgz")
	if err := os.WriteFile(name, []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := New(name, false, noon); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the file is overwritten without being asked: %v", err)
	}
	w, err := New(name, true, noon)
	if err != nil {
		t.Fatal(err)
	}
	add(t, w)
	w.Discard()
	if text, err := os.ReadFile(name); err != nil || string(text) != "before" {
		t.Errorf("an incomplete archive has replaced the file: %q, %v", text, err)
	}
	if w, err = New(name, true, noon); err != nil {
		t.Fatal(err)
	}
	add(t, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if len(entries(t, name)) != len(added) {
		t.Error("the file was not replaced")
	}
	isPrivate(t, name, 0o600)
	if got := files(t, folder); len(got) != 1 {
		t.Errorf("files are left: %v", got)
	}
}

func isPrivate(t *testing.T, name string, want fs.FileMode) {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != want {
		t.Errorf("%s has mode %o, want %o", name, info.Mode().Perm(), want)
	}
}

func files(t *testing.T, folder string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			path, err = filepath.Rel(folder, path)
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return found
}

func entries(t *testing.T, name string) []string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Mode != 0o600 {
			t.Errorf("%s has mode %o", header.Name, header.Mode)
		}
		found = append(found, header.Name)
	}
}

func TestTwoObjectsWithOneNameAreBothThere(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out")
	w, err := New(name, false, noon)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"a.yaml", "a-2.yaml", "a.yaml", "a.yaml"} {
		if err := w.Add(nil, "nodes", file); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{"nodes/a-2.yaml", "nodes/a-3.yaml", "nodes/a-4.yaml", "nodes/a.yaml"}
	if diff := cmp.Diff(want, files(t, name)); diff != "" {
		t.Error(diff)
	}
}
