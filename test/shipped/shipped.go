// Package shipped finds the QEMU of the images, and the programs and firmware beside it, for tests and benchmarks:
// `make qemu` unpacks them (images/qemutree). It must not be linked into a program of Drydock, and never falls back to a
// program of the machine.
package shipped

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

const (
	folder = "build/qemu"
	module = "module drydock.dev/drydock\n"
)

// Program returns the path of qemu-system-x86_64, qemu-img, qemu-io, qemu-ga or swtpm.
func Program(t testing.TB, name string) string {
	t.Helper()
	return File(t, "/bin/"+name)
}

// File returns the path of a file of the images, such as UEFI firmware. "/" is the folder with all of them.
func File(t testing.TB, name string) string {
	t.Helper()
	found, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Find is File for programs; theirs are in /bin.
func Find(name string) (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	found := filepath.Join(root, folder, name)
	if _, err := os.Stat(found); err != nil {
		return "", fmt.Errorf("looking for the images' QEMU, which `make qemu` unpacks: %w", err)
	}
	return found, nil
}

// OnPath puts the programs before all others on the PATH of this process, for code that executes them by name.
func OnPath() error {
	programs, err := Find("/bin")
	if err != nil {
		return err
	}
	return os.Setenv("PATH", programs+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

// repository returns the folder of the module, in which tests and benchmarks run.
func repository() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the repository: %w", err)
	}
	for at := start; ; at = filepath.Dir(at) {
		text, err := os.ReadFile(filepath.Join(at, "go.mod"))
		switch {
		case err == nil && bytes.HasPrefix(text, []byte(module)):
			return at, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("looking for the repository: %w", err)
		case at == filepath.Dir(at):
			return "", fmt.Errorf("looking for the images' QEMU: %s is not in the repository", start)
		}
	}
}
