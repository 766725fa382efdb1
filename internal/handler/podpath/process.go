package podpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNoProcess means that a pod has no process with what was looked for, or
// not yet.
var ErrNoProcess = errors.New("none of the pod's processes has it")

// FindRoot finds the file system of a pod's container in which name exists,
// by the pod's processes on this node.
func FindRoot(podUID, name string) (*Dir, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing the node's processes: %w", err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !inPod(pid, podUID) {
			continue
		}
		root, err := rootWith(pid, podUID, name)
		if err != nil {
			return nil, fmt.Errorf("looking into pod %s: %w", podUID, err)
		}
		if root != nil {
			return root, nil
		}
	}
	return nil, fmt.Errorf("looking for %s in pod %s: %w", name, podUID, ErrNoProcess)
}

// inPod tells whether the process of this number is one of the pod's.
func inPod(pid int, podUID string) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && cgroupsOfPod(string(data), podUID)
}

// rootWith opens the root of a process if name exists there; nil if not, or if
// the process has ended.
func rootWith(pid int, podUID, name string) (*Dir, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, gone(err)
	}
	defer release(pidfd)
	root, err := OpenRoot(filepath.Join("/proc", strconv.Itoa(pid), "root"))
	if err != nil {
		return nil, gone(err)
	}
	exists, err := root.Exists(name)
	// If the process lives now and is the pod's, then what was opened is its own
	// and not a later process's of the same number.
	if err != nil || !exists || unix.PidfdSendSignal(pidfd, 0, nil, 0) != nil || !inPod(pid, podUID) {
		root.Close()
		return nil, err
	}
	return root, nil
}

// gone takes the end of a process for the absence of an error.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}
