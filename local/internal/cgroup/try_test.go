package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheKubeletsControllersAreLookedFor(t *testing.T) {
	unified := t.TempDir()
	if err := os.WriteFile(filepath.Join(unified, "cgroup.controllers"), []byte("cpuset cpu io\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v1 := func(names ...string) Tree {
		tree := Tree{}
		for _, name := range names {
			tree.roots = append(tree.roots, filepath.Join(unified, "v1", name))
		}
		return tree
	}
	for name, test := range map[string]struct {
		tree Tree
		says string
	}{
		"a unified hierarchy without memory":         {Tree{unified: true, roots: []string{unified}}, "there is no memory, pids"},
		"hierarchies without memory":                 {v1("cpu,cpuacct", "cpuset", "pids"), "there is no memory"},
		"hierarchies in which no cgroup can be made": {v1("cpu,cpuacct", "cpuset", "pids", "memory"), "making a cgroup"},
	} {
		if err := test.tree.Try("trial"); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want an error that says %q", name, err, test.says)
		}
	}
}

func TestTryingLeavesNoCgroup(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("cpuset cpu memory pids\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A plain folder has no cgroup.procs: it must be refused, and still be removed.
	err := Tree{unified: true, roots: []string{root}}.Try("trial")
	if err == nil || !strings.Contains(err.Error(), "cgroup.procs") {
		t.Errorf("a folder passed for a cgroup: %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, "trial")); err == nil {
		t.Error("the trial is left")
	}
}
