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

// parts are what a cluster makes in its folder, but for the record, which goes last:
// a purge that was interrupted can be repeated as long as it is there.
var parts = []string{"nodes", "etcd", "images", "config", "pki", "logs", "run", "shared", "kubeconfig"}

const record = "cluster.json"

// partial is how files begin that WriteFile was interrupted at.
const partial = ".new-"

// foreign lists what is in a folder that no cluster makes. The folder that every new
// ext4 filesystem has is nobody's.
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

// Claim makes the folder of a new cluster the cluster's, and marks that of one whose
// record an earlier build has made. found is what Load has said. A folder with
// something in it is refused: a later purge could not tell what is whose.
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
	// The older cluster of a folder with other things in it goes on without the mark.
	c.Alone = len(names) == 0
	return c, nil
}

// realDir makes a folder and follows the symbolic links to it.
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

// some names a few of many.
func some(names []string) string {
	if len(names) > 4 {
		return strings.Join(names[:3], ", ") + fmt.Sprintf(" and %d more", len(names)-3)
	}
	return strings.Join(names, ", ")
}

// Purgeable says why a cluster's data can't be deleted; it is nil if it can. It reads
// the record again: what is deleted is decided by what is on disk.
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

// Purge deletes a cluster's data: what Drydock has put into the folder, and the
// folder itself if nothing else is in it.
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
		return nil // what others have put here since keeps the folder
	}
	// A filesystem of its own can be emptied only.
	if err := os.Remove(c.Dir); err != nil && !errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("deleting the cluster's folder: %w", err)
	}
	return nil
}
