package shipped

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// inRepository makes a repository with files, and enters a folder in it.
func inRepository(t *testing.T, files ...string) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, name := range append(files, "go.mod", "local/go.mod", "local/some/file") {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		text := "module drydock.dev/local\n"
		if name == "go.mod" {
			text = module
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(filepath.Join(root, "local/some"))
	return root
}

func TestAProgramIsFoundFromEveryFolder(t *testing.T) {
	root := inRepository(t, "build/qemu/bin/qemu-img")
	want := filepath.Join(root, "build/qemu/bin/qemu-img")
	if got := Program(t, "qemu-img"); got != want {
		t.Errorf("got %s", got)
	}
	t.Setenv("PATH", "/usr/bin")
	if err := OnPath(); err != nil {
		t.Fatal(err)
	}
	if got := os.Getenv("PATH"); got != filepath.Dir(want)+":/usr/bin" {
		t.Errorf("the PATH is %s", got)
	}
}

// The machine's own QEMU must not be used in its place.
func TestWithoutTheImagesQEMUMakeQEMUIsNamed(t *testing.T) {
	inRepository(t)
	for name, err := range map[string]error{"Find": second(Find("/bin/sh")), "OnPath": OnPath()} {
		if err == nil || !strings.HasPrefix(err.Error(), "looking for the images' QEMU, which `make qemu` unpacks: ") {
			t.Errorf("%s: got the error %v", name, err)
		}
	}
}

func TestOutsideOfTheRepositoryNothingIsFound(t *testing.T) {
	t.Chdir("/")
	if _, err := Find("/"); err == nil || !strings.HasSuffix(err.Error(), "/ is not in the repository") {
		t.Errorf("got the error %v", err)
	}
}

func second(_ string, err error) error { return err }
