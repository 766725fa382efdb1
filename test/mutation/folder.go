package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// workingFolder is build/mutation. It has the files of gremlins and a copy of the source, whose
// path is the same in every run, so that the Go tool compiles only changes.
type workingFolder struct {
	root, path string
	lock       *os.File
}

// Two runs would mix their sources: the folder is locked.
func newWorkingFolder(root string) (*workingFolder, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("finding the folder of the repository: %w", err)
	}
	f := &workingFolder{root: root, path: filepath.Join(root, "build", "mutation")}
	if err := os.MkdirAll(f.path, 0o755); err != nil {
		return nil, fmt.Errorf("making the working folder: %w", err)
	}
	if f.lock, err = os.Create(filepath.Join(f.path, "lock")); err != nil {
		return nil, fmt.Errorf("locking the working folder: %w", err)
	}
	if err := syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.lock.Close()
		return nil, fmt.Errorf("locking %s, which another run may be using: %w", f.path, err)
	}
	return f, nil
}

func (f *workingFolder) source() string { return filepath.Join(f.path, "source") }

// The files are those that Git would commit.
func (f *workingFolder) copySource(ctx context.Context) error {
	if err := os.RemoveAll(f.source()); err != nil {
		return fmt.Errorf("removing the last run's copy of the source: %w", err)
	}
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir, cmd.Stderr = f.root, os.Stderr
	list, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("listing the files of the source: %w", err)
	}
	for name := range bytes.SplitSeq(bytes.TrimSuffix(list, []byte{0}), []byte{0}) {
		err := copyFile(filepath.Join(f.root, string(name)), filepath.Join(f.source(), string(name)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // deleted but not committed
			return fmt.Errorf("copying the source: %w", err)
		}
	}
	return f.linkQEMU()
}

// linkQEMU gives the copy the QEMU that `make qemu` unpacked.
func (f *workingFolder) linkQEMU() error {
	link := filepath.Join(f.source(), "build", "qemu")
	err := os.MkdirAll(filepath.Dir(link), 0o755)
	if err == nil {
		err = os.Symlink(filepath.Join(f.root, "build", "qemu"), link)
	}
	if err != nil {
		return fmt.Errorf("linking QEMU into the copy of the source: %w", err)
	}
	return nil
}

// A link stays a link.
func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode().Perm())
}
