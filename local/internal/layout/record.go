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

// The second octets that clusters may use: 10.77 to 10.140, out of the way of
// what Docker, libvirt and the usual CNI defaults take.
const (
	firstNet = 77
	netCount = 64
)

// Load reads a cluster's record. found is false when there is none yet.
func Load(name, dir string) (c Cluster, found bool, err error) {
	if err := Check(name, dir); err != nil {
		return Cluster{}, false, err
	}
	c = Cluster{Name: name, Dir: dir}
	data, err := os.ReadFile(c.Record())
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("reading the cluster's record: %w", err)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, false, fmt.Errorf("reading the cluster's record %s: %w", c.Record(), err)
	}
	if c.Name != name {
		return c, false, fmt.Errorf("reading the cluster's record %s: the folder belongs to cluster %q, not %q", c.Record(), c.Name, name)
	}
	return c, true, nil
}

// Save writes the record so that a reader never sees half of it.
func (c Cluster) Save() error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the cluster's record: %w", err)
	}
	return WriteFile(c.Record(), append(data, '\n'), 0o600)
}

// WriteFile replaces a file in one step and makes its folder.
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

// WithNodes is the cluster with at least count nodes. Nodes are never taken
// away by it: their pods and disks would be lost without a word.
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

// ChooseNet finds a range that overlaps nothing the host already routes. The
// search begins at a place that depends on the cluster, so that two clusters
// of which one is down seldom claim the same range.
func ChooseNet(c Cluster, taken []netip.Prefix) (int, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.hash())) // never fails, says its documentation
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

// Purge deletes a cluster's data: what Drydock has put into the folder, and
// the folder itself if nothing else is in it.
func (c Cluster) Purge() error {
	for _, name := range []string{"nodes", "etcd", "images", "config", "pki", "logs", "run", "shared", "kubeconfig", "cluster.json"} {
		if err := os.RemoveAll(c.path(name)); err != nil {
			return fmt.Errorf("deleting the cluster's data: %w", err)
		}
	}
	entries, err := os.ReadDir(c.Dir)
	if err == nil && len(entries) == 0 {
		err = os.Remove(c.Dir)
	}
	if err != nil {
		return fmt.Errorf("deleting the cluster's folder: %w", err)
	}
	return nil
}
