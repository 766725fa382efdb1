package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

func TestV1Roots(t *testing.T) {
	const file = `22 27 0:21 / /proc rw,relatime - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime shared:9 - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
42 31 0:39 / /mnt/cgroup/other rw,relatime - cgroup cgroup rw,pids
`
	want := []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"}
	mounts, err := mountinfo.GetMountsFromReader(strings.NewReader(file), v1Root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range mounts {
		got = append(got, m.Mountpoint)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Every cgroup above the new one must delegate its controllers; the new one must not, because it will have
// processes.
func TestDelegation(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"", "drydock", "drydock/c", "drydock/c/node1"} {
		path := filepath.Join(root, dir)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "cgroup.controllers"), []byte("memory\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tree := Tree{unified: true, roots: []string{root}}
	if err := tree.Create("/drydock/c/node1"); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"": "+memory", "drydock": "+memory", "drydock/c": "+memory", "drydock/c/node1": ""} {
		got, err := os.ReadFile(filepath.Join(root, dir, "cgroup.subtree_control"))
		if string(got) != want {
			t.Errorf("%q hands down %q (%v), want %q", dir, got, err, want)
		}
	}
}

// A host may have both kinds of hierarchy, and each has its own kind of file.
func TestAPreferredCgroupHasEightShares(t *testing.T) {
	root := t.TempDir()
	tree := Tree{roots: []string{filepath.Join(root, "cpu"), filepath.Join(root, "memory"), filepath.Join(root, "unified")}}
	if err := tree.Create("/drydock/c/control"); err != nil {
		t.Fatal(err)
	}
	for file, usual := range map[string]string{"cpu/drydock/c/control/cpu.shares": "1024", "unified/drydock/c/control/cpu.weight": "100"} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(usual), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.Prefer("/drydock/c/control"); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"cpu/drydock/c/control/cpu.shares": "8192", "memory/drydock/c/control/cpu.shares": "", "unified/drydock/c/control/cpu.weight": "800",
	} {
		if got, err := os.ReadFile(filepath.Join(root, file)); string(got) != want {
			t.Errorf("%s is %q (%v), want %q", file, got, err, want)
		}
	}
}

func TestAClusterThatEndsIsNoObstacleToOneThatStarts(t *testing.T) {
	tree := Tree{roots: []string{t.TempDir()}}
	ended, ending := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ending:
				return
			default:
				tree.RemoveParent("/drydock")
			}
		}
	}()
	for range 200 {
		if err := tree.Create("/drydock/c"); err != nil {
			t.Error(err)
			break
		}
		tree.RemoveParent("/drydock/c")
	}
	close(ending)
	<-ended
}
