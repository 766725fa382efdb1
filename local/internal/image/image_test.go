package image

import (
	"archive/tar"
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The same files make the same bytes.
func archive(t *testing.T, files map[string]string) string {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := files[name]
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(path, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNames(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  []string
	}{
		"docker save with a short name": {
			map[string]string{"manifest.json": `[{"RepoTags":["virt"]}]`}, []string{"docker.io/library/virt:latest"}},
		"docker save with several names": {
			map[string]string{"manifest.json": `[{"RepoTags":["a.example/x:1","a.example/y:2"]}]`}, []string{"a.example/x:1", "a.example/y:2"}},
		"an OCI layout with containerd's annotation": {
			map[string]string{"./index.json": `{"manifests":[{"annotations":{"io.containerd.image.name":"a.example/x:1","org.opencontainers.image.ref.name":"1"}}]}`}, []string{"a.example/x:1"}},
		"both layouts in one archive": {
			map[string]string{"manifest.json": `[{"RepoTags":["a.example/x:1"]}]`, "index.json": `{"manifests":[{"annotations":{"org.opencontainers.image.ref.name":"a.example/x:1"}}]}`}, []string{"a.example/x:1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a, err := NewStore(t.TempDir()).Add(archive(t, test.files))
			if err != nil || !slices.Equal(a.Refs, test.want) {
				t.Errorf("got %v, %v; want %v", a.Refs, err, test.want)
			}
		})
	}
}

func TestAddRefuses(t *testing.T) {
	notTar := filepath.Join(t.TempDir(), "x.tar")
	if err := os.WriteFile(notTar, []byte(strings.Repeat("no archive ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for path, want := range map[string]string{
		notTar: "it is no image archive",
		archive(t, map[string]string{"manifest.json": `[{"RepoTags":null}]`}): "names no image",
		archive(t, map[string]string{"manifest.json": `{`}):                   "reading manifest.json",
		filepath.Join(dir, "missing"):                                         "no such file",
	} {
		if _, err := NewStore(dir).Add(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil || len(left) > 0 {
		t.Errorf("refused archives were kept: %v %v", left, err)
	}
}

func TestALaterArchiveTakesTheNamesOver(t *testing.T) {
	store := NewStore(t.TempDir())
	add := func(tags, salt string) Archive {
		t.Helper()
		a, err := store.Add(archive(t, map[string]string{"manifest.json": `[{"RepoTags":[` + tags + `]}]`, "salt": salt}))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	both := add(`"e.example/a:1","e.example/b:1"`, "1")
	newA := add(`"e.example/a:1"`, "2")
	list, err := store.List()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || !slices.Equal(list[0].Refs, []string{"e.example/b:1"}) || !slices.Equal(list[1].Refs, newA.Refs) {
		t.Fatalf("after a new build of a: %+v", list)
	}
	newB := add(`"e.example/b:1"`, "3")
	if _, err := os.Stat(store.Path(both)); !os.IsNotExist(err) {
		t.Errorf("an archive without names is still there: %v", err)
	}
	if _, err := os.Stat(store.Path(newB)); err != nil {
		t.Errorf("the new archive is not there: %v", err)
	}
	if again := add(`"e.example/b:1"`, "3"); again.Digest != newB.Digest {
		t.Errorf("the same archive has two digests: %s and %s", again.Digest, newB.Digest)
	}
	if list, err = store.List(); err != nil || len(list) != 2 {
		t.Errorf("loading the same archive twice lists %+v, %v", list, err)
	}
}

func TestFromBinaryIsTheSameEveryTime(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "tool")
	if err := os.WriteFile(program, []byte("#!"), 0o700); err != nil {
		t.Fatal(err)
	}
	store := NewStore(filepath.Join(dir, "store"))
	for range 2 {
		if err := store.AddBinary("drydock.test/tool:1", program); err != nil {
			t.Fatal(err)
		}
	}
	list, err := store.List()
	if err != nil || len(list) != 1 || !slices.Equal(list[0].Refs, []string{"drydock.test/tool:1"}) {
		t.Errorf("after adding one image twice: %+v, %v", list, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "store", "*.tar"))
	if err != nil || len(files) != 1 {
		t.Errorf("the store holds %v, %v", files, err)
	}
}
