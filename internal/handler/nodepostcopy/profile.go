package nodepostcopy

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"drydock.dev/drydock/internal/contracts/layout"
)

// profile is what the container runtime lets a container without capabilities do, and userfaultfd. A test beside the
// embedded cluster's containerd makes it of that one's default profile.
//
//go:embed profile.json
var profile []byte

// Profile is the file, and its place.
type Profile struct {
	// path is absolute; its folder is Drydock's own.
	path string
}

// ProfileIn is the profile below a kubelet's folder.
func ProfileIn(kubelet string) Profile {
	return Profile{path: filepath.Join(kubelet, layout.SeccompDir, filepath.FromSlash(layout.LauncherSeccompProfile))}
}

// Put has the file be as it must be, and reports whether it was not. Whoever reads it meanwhile finds all of
// it, or none.
func (p Profile) Put() (written bool, err error) {
	if has, err := os.ReadFile(p.path); err == nil && bytes.Equal(has, profile) {
		return false, nil
	}
	if err := p.write(); err != nil {
		return false, fmt.Errorf("writing the seccomp profile of launchers: %w", err)
	}
	return true, nil
}

func (p Profile) write() error {
	dir := filepath.Dir(p.path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer f.Close()
	if err = fill(f); err == nil {
		err = os.Rename(f.Name(), p.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func fill(f *os.File) error {
	if _, err := f.Write(profile); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	// A node that loses its power must not come back with an empty profile under this name.
	return f.Sync()
}

// Remove removes the file, and its folder with what an interrupted Put has left there.
func (p Profile) Remove() error {
	if err := os.RemoveAll(filepath.Dir(p.path)); err != nil {
		return fmt.Errorf("removing the seccomp profile of launchers: %w", err)
	}
	return nil
}
