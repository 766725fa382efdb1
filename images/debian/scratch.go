package debian

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Scratch makes a folder for temporary files below parent, with a name that begins with prefix, and returns it with the
// function that removes it. It first removes such folders of processes that were killed: a folder is locked while its
// process lives.
func Scratch(parent, prefix string) (folder string, remove func(), err error) {
	if err := removeLeftovers(parent, prefix); err != nil {
		return "", nil, err
	}
	for {
		folder, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			return "", nil, fmt.Errorf("making a folder for temporary files: %w", err)
		}
		lock, err := lockFolder(folder)
		if err == nil {
			return folder, func() {
				_ = os.RemoveAll(folder) // the next process removes what remains
				_ = lock.Close()
			}, nil
		}
		// Another process may take a folder without a lock for a leftover.
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, os.ErrNotExist) {
			return "", nil, fmt.Errorf("locking a folder for temporary files: %w", err)
		}
	}
}

func removeLeftovers(parent, prefix string) error {
	found, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
	if err != nil {
		return fmt.Errorf("listing the temporary folders in %s: %w", parent, err)
	}
	for _, folder := range found {
		lock, err := lockFolder(folder)
		if err != nil {
			continue // in use, gone, or a file
		}
		_ = os.RemoveAll(folder) // leftovers only take space
		_ = lock.Close()
	}
	return nil
}

// lockFolder locks a folder until the file is closed. The error is EWOULDBLOCK if another process has the lock, and
// ErrNotExist if the folder was removed.
func lockFolder(folder string) (*os.File, error) {
	f, err := os.OpenFile(folder, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), stillThere(f, folder)); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func stillThere(f *os.File, name string) error {
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	now, err := os.Stat(name)
	if err == nil && !os.SameFile(opened, now) {
		err = os.ErrNotExist
	}
	return err
}
