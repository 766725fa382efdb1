// Package cgroup creates, joins, empties and removes the cluster's cgroups, with cgroup v1 and v2. A cluster's cgroup
// is also its process table: a process can't leave it by forking, so every process in it belongs to the cluster.
// Outside of the cluster's cgroups it must change nothing but their ancestors, which need the controllers.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

const mountpoint = "/sys/fs/cgroup"

// Tree is the host's cgroup hierarchies.
type Tree struct {
	unified bool
	roots   []string
}

// Open finds the mounted hierarchies.
func Open(unified bool) (Tree, error) {
	if unified {
		return Tree{unified: true, roots: []string{mountpoint}}, nil
	}
	mounts, err := mountinfo.GetMounts(v1Root)
	if err != nil {
		return Tree{}, fmt.Errorf("looking for cgroup hierarchies: %w", err)
	}
	if len(mounts) == 0 {
		return Tree{}, fmt.Errorf("looking for cgroup hierarchies: none is mounted under %s", mountpoint)
	}
	var tree Tree
	for _, m := range mounts {
		tree.roots = append(tree.roots, m.Mountpoint)
	}
	return tree, nil
}

func v1Root(m *mountinfo.Info) (skip, stop bool) {
	hierarchy := m.FSType == "cgroup" || m.FSType == "cgroup2"
	return !hierarchy || !strings.HasPrefix(m.Mountpoint, mountpoint+"/"), false
}

// Create creates a cgroup in every hierarchy.
func (t Tree) Create(path string) error {
	for _, root := range t.roots {
		var err error
		for range attempts {
			// Other clusters may make and remove the parent of all clusters meanwhile.
			if err = t.createIn(root, path); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.ENODEV) {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// attempts is far more than clusters can come and go while a cgroup is made.
const attempts = 100

func (t Tree) createIn(root, path string) error {
	if t.unified {
		// In the unified hierarchy, children can't use controllers that an ancestor lacks.
		dir := t.roots[0]
		elements := strings.Split(strings.Trim(path, "/"), "/")
		for i := range elements {
			if i > 0 {
				dir = filepath.Join(dir, elements[i-1])
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return fmt.Errorf("making the cgroup %s: %w", dir, err)
				}
			}
			if err := enableControllers(dir); err != nil {
				return err
			}
		}
	}
	if err := os.MkdirAll(filepath.Join(root, path), 0o755); err != nil {
		return fmt.Errorf("making the cgroup %s: %w", path, err)
	}
	if filepath.Base(root) == "cpuset" {
		return inheritCpuset(root, path)
	}
	return nil
}

func enableControllers(dir string) error {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("reading the controllers of %s: %w", dir, err)
	}
	for _, controller := range strings.Fields(string(available)) {
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		if errors.Is(err, unix.EBUSY) {
			// In a container, the root cgroup's processes must move to a leaf before its children can have
			// controllers.
			err = errors.Join(move(dir, filepath.Join(dir, "drydock-outer")),
				os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644))
		}
		if err != nil {
			return fmt.Errorf("giving the controller %s to the children of %s: %w", controller, dir, err)
		}
	}
	return nil
}

func move(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	pids, err := procs(from)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// No process could enter an empty cpuset.
func inheritCpuset(root, path string) error {
	dir := root
	for _, element := range strings.Split(strings.Trim(path, "/"), "/") {
		parent := dir
		dir = filepath.Join(dir, element)
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			own, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				return fmt.Errorf("reading %s of the cgroup %s: %w", file, path, err)
			}
			if strings.TrimSpace(string(own)) != "" {
				continue
			}
			value, err := os.ReadFile(filepath.Join(parent, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), value, 0o644)
			}
			if err != nil {
				return fmt.Errorf("copying %s into the cgroup %s: %w", file, path, err)
			}
		}
	}
	return nil
}

// Join moves this process into a new cgroup.
func (t Tree) Join(path string) error {
	if err := t.Create(path); err != nil {
		return err
	}
	for _, root := range t.roots {
		if err := os.WriteFile(filepath.Join(root, path, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("joining the cgroup %s: %w", filepath.Join(root, path), err)
		}
	}
	return nil
}

// shares maps the files that hold a cgroup's share of contended CPU time to the kernel's defaults.
var shares = map[string]int{"cpu.shares": 1024, "cpu.weight": 100}

// Prefer gives a cgroup eight times the default CPU share: emulated guests have made an API server wait for a
// minute.
func (t Tree) Prefer(path string) error {
	for _, root := range t.roots {
		for name, usual := range shares {
			file := filepath.Join(root, path, name)
			if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
				continue // a file of another hierarchy
			}
			if err := os.WriteFile(file, []byte(strconv.Itoa(8*usual)), 0o644); err != nil {
				return fmt.Errorf("giving the cgroup %s more CPU time: %w", path, err)
			}
		}
	}
	return nil
}

// Procs lists the processes, including descendants'.
func (t Tree) Procs(path string) ([]int, error) {
	var all []int
	for _, root := range t.roots {
		err := filepath.WalkDir(filepath.Join(root, path), func(dir string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // removed since, or never created
			}
			if err != nil || !d.IsDir() {
				return err
			}
			pids, err := procs(dir)
			all = append(all, pids...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("listing the processes of the cgroup %s: %w", path, err)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func procs(dir string) ([]int, error) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // removed or threaded
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, field := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("reading %s/cgroup.procs: %w", dir, err)
		}
		if pid > 0 { // 0 is of an outer PID namespace
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Destroy kills the processes of a cgroup except the caller, waits until they are gone, and removes the cgroup and
// its descendants.
func (t Tree) Destroy(ctx context.Context, path string) error {
	for {
		pids, err := t.Procs(path)
		if err != nil {
			return err
		}
		pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() })
		if len(pids) == 0 {
			break
		}
		if err := t.killAll(ctx, path, pids); err != nil {
			return fmt.Errorf("emptying the cgroup %s: %w", path, err)
		}
	}
	for _, root := range t.roots {
		if err := removeTree(ctx, filepath.Join(root, path)); err != nil {
			return err
		}
	}
	return nil
}

// killAll waits until the processes are gone. A number may have been given to another process since it was listed, so
// the cgroup must still have it when the process is open.
func (t Tree) killAll(ctx context.Context, path string, pids []int) (err error) {
	opened := map[int]int{}
	defer func() {
		for _, fd := range opened {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			continue // already reaped; a thread may have its number (EINVAL, since Linux 6.16 ENOENT)
		}
		if err != nil {
			return fmt.Errorf("opening process %d: %w", pid, err)
		}
		opened[pid] = fd
	}
	still, err := t.Procs(path)
	if err != nil {
		return err
	}
	for _, pid := range still {
		fd, ok := opened[pid]
		if !ok {
			continue
		}
		err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		if err == nil || errors.Is(err, unix.ESRCH) {
			err = awaitExit(ctx, fd)
		}
		if err != nil {
			return fmt.Errorf("killing process %d: %w", pid, err)
		}
	}
	return nil
}

func awaitExit(ctx context.Context, pidfd int) error {
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return nil
		}
	}
	return ctx.Err()
}

// removeTree removes cgroups from the leaves up. It retries, because the kernel holds a cgroup for a moment after
// its last process.
func removeTree(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing the cgroup %s: %w", dir, err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(ctx, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("removing the cgroup %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing the cgroup %s: %w", dir, err)
		case <-retry.C:
		}
	}
}

// RemoveParent removes the parent of all clusters' cgroups, if empty.
func (t Tree) RemoveParent(path string) {
	for _, root := range t.roots {
		_ = unix.Rmdir(filepath.Join(root, path)) // EBUSY: another cluster still uses it
	}
}
