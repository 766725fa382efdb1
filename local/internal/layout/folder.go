package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// parts are the entries of a cluster's folder except the record. Purge deletes the record last:
// while it exists, an interrupted purge can be repeated.
var parts = []string{"nodes", "etcd", "images", "config", "pki", "logs", "run", "shared", "kubeconfig"}

const record = "cluster.json"

// partial is the prefix of files that an interrupted WriteFile leaves.
const partial = ".new-"

// foreign lists the entries of a folder that are not known and not temporary files. It ignores the
// lost+found of ext4.
func foreign(dir string, known []string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking into the data folder: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name := e.Name(); !slices.Contains(known, name) && name != "lost+found" && !strings.HasPrefix(name, partial) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Claim prepares the folder of a new cluster, and marks that of an existing one without the mark Alone. found is
// Load's result. A new cluster needs an empty folder: a purge could not tell which files are the cluster's.
func (c Cluster) Claim(found bool) (Cluster, error) {
	if c.Alone {
		return c, nil
	}
	known := []string{}
	if found {
		known = append(slices.Clone(parts), record)
	}
	names, err := foreign(c.Dir, known)
	if err != nil {
		return c, err
	}
	if len(names) > 0 && !found {
		return c, fmt.Errorf("making cluster %s: the data folder %s is not empty and holds no cluster (there is %s): give an empty or a new folder with --dir, such as %s",
			c.Name, c.Dir, some(names), filepath.Join(c.Dir, "drydock-data"))
	}
	if !found {
		if c.Dir, err = realDir(c.Dir); err != nil {
			return c, err
		}
		if err := Check(c.Name, c.Dir); err != nil {
			return c, err
		}
	}
	// An older cluster with foreign files stays unmarked.
	c.Alone = len(names) == 0
	return c, nil
}

func realDir(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the data folder: %w", err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("finding the data folder: %w", err)
	}
	return real, nil
}

func some(names []string) string {
	if len(names) > 4 {
		return strings.Join(names[:3], ", ") + fmt.Sprintf(" and %d more", len(names)-3)
	}
	return strings.Join(names, ", ")
}

// Purgeable returns an error if the data must not be deleted. It reads the record again: only the disk's state
// counts.
func (c Cluster) Purgeable() error {
	now, found, err := Load(c.Name, c.Dir)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("deleting the data of cluster %s: its record %s is gone, so that nothing says what in the folder is the cluster's: delete by hand what is", c.Name, c.Record())
	}
	if now.Alone {
		return nil
	}
	names, err := foreign(c.Dir, append(slices.Clone(parts), record))
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("deleting the data of cluster %s: it was made in %s among other things (there is %s), so that nothing says whose %s there are: move away what is not the cluster's and try again, or delete by hand what is",
			c.Name, c.Dir, some(names), strings.Join(parts[:4], ", "))
	}
	return nil
}

// Purge deletes Drydock's files, and the folder if it is empty.
func (c Cluster) Purge() error {
	if err := c.Purgeable(); err != nil {
		return err
	}
	for _, name := range append(slices.Clone(parts), record) {
		if err := os.RemoveAll(c.path(name)); err != nil {
			return fmt.Errorf("deleting the cluster's data: %w", err)
		}
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return fmt.Errorf("deleting the cluster's folder: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), partial) {
			if err := os.Remove(c.path(e.Name())); err != nil {
				return fmt.Errorf("deleting the cluster's data: %w", err)
			}
			continue
		}
		return nil // foreign files keep the folder
	}
	// A mount point can only be emptied.
	if err := os.Remove(c.Dir); err != nil && !errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("deleting the cluster's folder: %w", err)
	}
	return nil
}
