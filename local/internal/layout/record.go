package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
)

// The second octets of clusters, 10.77 to 10.140, avoid the usual ranges of Docker, libvirt and CNI
// plugins.
const (
	firstNet = 77
	netCount = 64
)

// Load reads a cluster's record; found is false if there is none. Dir is the recorded folder, or the given one.
func Load(name, dir string) (c Cluster, found bool, err error) {
	if err := Check(name, dir); err != nil {
		return Cluster{}, false, err
	}
	c = Cluster{Name: name, Dir: dir}
	record := c.Record()
	data, err := os.ReadFile(record)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("reading the cluster's record: %w", err)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, false, fmt.Errorf("reading the cluster's record %s: %w", record, err)
	}
	if c.Name != name {
		return c, false, fmt.Errorf("reading the cluster's record %s: the folder belongs to cluster %q, not %q; give --name %s, or another --dir", record, c.Name, name, c.Name)
	}
	c.Dir, err = firstName(c.Dir, dir)
	if err != nil {
		return c, false, fmt.Errorf("reading the cluster's record %s: %w", record, err)
	}
	return c, true, nil
}

// firstName returns the recorded name of the given folder, because the names of kernel objects derive from it. It
// returns the given name for a folder that was moved, and an error for a copy.
func firstName(recorded, given string) (string, error) {
	if recorded == "" || recorded == given {
		return given, nil
	}
	there, err := os.Stat(recorded)
	if errors.Is(err, fs.ErrNotExist) {
		return given, nil
	}
	if err != nil {
		return "", fmt.Errorf("looking at the folder that it names: %w", err)
	}
	here, err := os.Stat(given)
	if err != nil {
		return "", fmt.Errorf("looking at its folder: %w", err)
	}
	if !os.SameFile(there, here) {
		return "", fmt.Errorf("it is that of the cluster in %s, copied to %s: use --dir %s, or delete the copy", recorded, given, recorded)
	}
	return recorded, nil
}

// Save writes the record atomically.
func (c Cluster) Save() error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the cluster's record: %w", err)
	}
	return WriteFile(c.Record(), append(data, '\n'), 0o600)
}

// WriteFile replaces a file atomically and creates its folder.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making the folder of %s: %w", path, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), os.Remove(tmp.Name()))
	}
	return nil
}

// WithNodes returns the cluster with at least count nodes. It never removes one, whose pods and disks would be
// lost silently.
func (c Cluster) WithNodes(count int) (Cluster, error) {
	if count < 1 || count > MaxNodes {
		return c, fmt.Errorf("choosing the number of nodes: %d is not between 1 and %d", count, MaxNodes)
	}
	c.Nodes = append([]string(nil), c.Nodes...)
	for len(c.Nodes) < count {
		c.Nodes = append(c.Nodes, NodeName(len(c.Nodes)))
	}
	return c, nil
}

// ChooseNet finds a range that overlaps no route of the host. It starts at a hash of the cluster, so that a cluster
// that is down rarely loses its range.
func ChooseNet(c Cluster, taken []netip.Prefix) (int, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.hash())) // Write of a hash never fails
	start := int(h.Sum32() % netCount)
	if c.Name == DefaultName && c.Dir == DefaultDir {
		start = 0
	}
	for i := range netCount {
		net := firstNet + (start+i)%netCount
		if Conflict(net, taken) == nil {
			return net, nil
		}
	}
	return 0, fmt.Errorf("choosing a subnet: the host uses all of 10.%d.0.0/16 to 10.%d.0.0/16", firstNet, firstNet+netCount-1)
}

// Conflict returns the first of the taken ranges that overlaps the cluster's.
func Conflict(net int, taken []netip.Prefix) *netip.Prefix {
	mine := Subnet(net)
	for _, p := range taken {
		if p.Bits() > 0 && p.Overlaps(mine) {
			return &p
		}
	}
	return nil
}
