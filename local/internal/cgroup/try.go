package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The controllers that the kubelet needs, by kind of hierarchy.
var (
	v1Controllers      = []string{"cpu", "cpuacct", "cpuset", "memory", "pids"}
	unifiedControllers = []string{"cpu", "cpuset", "memory", "pids"}
)

// Try creates a cgroup and removes it. It enables no controller.
func (t Tree) Try(path string) error {
	has, err := t.controllers()
	if err != nil {
		return err
	}
	wanted := v1Controllers
	if t.unified {
		wanted = unifiedControllers
	}
	missing := slices.DeleteFunc(slices.Clone(wanted), func(name string) bool { return slices.Contains(has, name) })
	if len(missing) > 0 {
		return fmt.Errorf("looking for cgroup controllers: there is no %s", strings.Join(missing, ", "))
	}
	for _, root := range t.roots {
		dir := filepath.Join(root, path)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("making a cgroup: %w", err)
		}
		_, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err := errors.Join(err, unix.Rmdir(dir)); err != nil {
			return fmt.Errorf("using the cgroup %s: %w", dir, err)
		}
	}
	return nil
}

func (t Tree) controllers() ([]string, error) {
	if t.unified {
		data, err := os.ReadFile(filepath.Join(t.roots[0], "cgroup.controllers"))
		if err != nil {
			return nil, fmt.Errorf("looking for cgroup controllers: %w", err)
		}
		return strings.Fields(string(data)), nil
	}
	var names []string
	for _, root := range t.roots {
		// Hierarchies with a shared mount point have all of their names.
		names = append(names, strings.Split(filepath.Base(root), ",")...)
	}
	return names, nil
}
