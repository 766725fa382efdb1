package baseline

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

// share is a cgroup beside a pod's with the same CPU weight. Its parent is the kubelet's cgroup for
// pods of that QoS class, so it competes for CPU time like a pod.
type share struct{ dir string }

// shareName is no pod's name, so the kubelet ignores the cgroup.
const shareName = "by-hand"

// weights are the files with the CPU weight in cgroup v1 and v2.
var weights = []string{"cpu.shares", "cpu.weight"}

func shareLike(pid int) (*share, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return nil, fmt.Errorf("reading the cgroup of QEMU: %w", err)
	}
	memberships, err := process.Cgroups()
	if err != nil {
		return nil, fmt.Errorf("reading the cgroup of QEMU: %w", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("looking for cgroup hierarchies: %w", err)
	}
	container := cpuCgroup(memberships, string(mounts))
	pod := filepath.Dir(container)
	if !strings.Contains(filepath.Base(pod), "pod") {
		return nil, fmt.Errorf("looking for the CPU share of a pod: process %d is in %q", pid, container)
	}
	s := &share{filepath.Join(filepath.Dir(pod), shareName)}
	if err := os.Mkdir(s.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("making a cgroup for the baseline: %w", err)
	}
	return s, s.weighLike(pod)
}

func (s *share) weighLike(pod string) error {
	for _, name := range weights {
		weight, err := os.ReadFile(filepath.Join(pod, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(s.dir, name), weight, 0o644)
		}
		if err != nil {
			return fmt.Errorf("taking over a pod's share of the CPUs: %w", err)
		}
		return nil
	}
	return fmt.Errorf("taking over a pod's share of the CPUs: %s has none of %v", pod, weights)
}

// cpuCgroup returns the folder of a process's CPU cgroup, given its cgroups and
// /proc/self/mountinfo; empty if there is none.
func cpuCgroup(memberships []procfs.Cgroup, mounts string) string {
	unified := ""
	for _, m := range memberships {
		if slices.Contains(m.Controllers, "cpu") {
			return filepath.Join(mountOf(mounts, "cgroup", "cpu"), m.Path)
		}
		if m.HierarchyID == 0 {
			unified = m.Path
		}
	}
	return filepath.Join(mountOf(mounts, "cgroup2", ""), unified)
}

func mountOf(mounts, kind, option string) string {
	lines := bufio.NewScanner(strings.NewReader(mounts))
	for lines.Scan() {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		where, what := strings.Fields(before), strings.Fields(after)
		if len(where) < 5 || len(what) < 3 || what[0] != kind {
			continue
		}
		if option == "" || slices.Contains(strings.Split(what[2], ","), option) {
			return where[4]
		}
	}
	return ""
}

func (s *share) remove() error {
	if err := os.Remove(s.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
