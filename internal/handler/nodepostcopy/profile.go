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

// profile is the container runtime's default profile for a container without capabilities, plus userfaultfd. A test
// beside the embedded cluster's containerd generates it from that containerd's default.
//
//go:embed profile.json
var profile []byte

// Profile is the profile's file on the node.
type Profile struct {
	path string
}

// ProfileIn returns the Profile below a kubelet's folder.
func ProfileIn(kubelet string) Profile {
	return Profile{path: filepath.Join(kubelet, layout.SeccompDir, filepath.FromSlash(layout.LauncherSeccompProfile))}
}

// Put writes the file if its content differs, and reports whether it did. A concurrent reader finds all of it or no
// file.
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
	if _, err = f.Write(profile); err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync() // a power failure must not leave an empty profile
	}
	if err == nil {
		err = os.Rename(f.Name(), p.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Remove removes the file, and its folder with the leftovers of an interrupted Put.
func (p Profile) Remove() error {
	if err := os.RemoveAll(filepath.Dir(p.path)); err != nil {
		return fmt.Errorf("removing the seccomp profile of launchers: %w", err)
	}
	return nil
}
