//go:build system

package system

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/loop"
)

// assertNothingLeft looks for all possible leftovers of a cluster on its host. Other clusters may run at the same time:
// only this one's traces count.
func assertNothingLeft(t *testing.T, c layout.Cluster) {
	t.Helper()
	checks := map[string]func(layout.Cluster) ([]string, error){
		"processes": leftProcesses, "mounts": leftMounts, "interfaces": leftLinks,
		"nftables tables": leftTables, "routes": leftRoutes, "cgroups": leftCgroups,
		"loop devices": func(c layout.Cluster) ([]string, error) { return loop.Under(c.LoopTag(""), c.Dir) },
	}
	for what, look := range checks {
		left, err := look(c)
		if err != nil {
			t.Errorf("looking for %s: %v", what, err)
		}
		if len(left) > 0 {
			t.Errorf("down left %s behind: %q", what, left)
		}
	}
}

// A network namespace lives as long as a process or a mount has it, so without these none is left.
func leftProcesses(c layout.Cluster) ([]string, error) {
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var left []string
	for _, dir := range entries {
		if filepath.Base(dir) == fmt.Sprint(os.Getpid()) {
			continue
		}
		if stat, _ := os.ReadFile(filepath.Join(dir, "stat")); strings.Contains(string(stat), ") Z ") {
			continue // it is dead; the host's init will reap it
		}
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // a process that ends meanwhile is no leftover
		cgroup, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		if strings.Contains(string(cmdline), c.Dir) || strings.Contains(string(cgroup), c.Cgroup()) {
			left = append(left, strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return left, nil
}

func leftMounts(c layout.Cluster) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	var left []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, c.Dir) {
			left = append(left, line)
		}
	}
	return left, err
}

func leftLinks(c layout.Cluster) ([]string, error) {
	links, err := os.ReadDir("/sys/class/net")
	var left []string
	for _, l := range links {
		if strings.HasPrefix(l.Name(), c.Bridge()) {
			left = append(left, l.Name())
		}
	}
	return left, err
}

func leftTables(c layout.Cluster) ([]string, error) {
	out, err := exec.Command("nft", "list", "tables").Output()
	var left []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, c.Table()) {
			left = append(left, line)
		}
	}
	return left, err
}

func leftRoutes(c layout.Cluster) ([]string, error) {
	if c.Net == 0 {
		return nil, nil // it never had a network
	}
	out, err := exec.Command("ip", "route", "show", "table", "all", "root", c.Subnet().String()).Output()
	if strings.TrimSpace(string(out)) == "" {
		return nil, err
	}
	return strings.Split(string(out), "\n"), err
}

func leftCgroups(c layout.Cluster) ([]string, error) {
	var left []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, c.Cgroup()) {
			left = append(left, path)
		}
		if os.IsNotExist(err) {
			return nil // another cluster's, gone meanwhile
		}
		return err
	})
	return left, err
}
