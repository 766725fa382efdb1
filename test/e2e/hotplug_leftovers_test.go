//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	v1 "kubevirt.io/api/core/v1"
)

// traces lists the traces of volumes in use on a machine, by the place where they are visible.
type traces map[string][]string

// tracesOf looks for traces on the nodes, in the pods of virt-handler and in the pod of a VMI. No other test may run
// beside it.
func tracesOf(t *testing.T, vmi *v1.VirtualMachineInstance) traces {
	t.Helper()
	found := traces{"loop devices": loopDevices(t)}
	// The places of all nodes are one, because a pod whose node was not ready goes to another node.
	add := func(place string, things []string) { found[place] = append(found[place], things...) }
	for _, node := range status(t).Nodes {
		for _, c := range node.Components {
			if c.Name == "kubelet" {
				add("mounts of the nodes", mounts(t, c.PID))
				add("pods' folders of the nodes", folders(t, fmt.Sprintf("/proc/%d/root/var/lib/kubelet/pods", c.PID)))
				add("device nodes under the kubelets", deviceNodes(t, fmt.Sprintf("/proc/%d/root/var/lib/kubelet", c.PID)))
				add("cgroups of the nodes", folders(t, filepath.Join(deviceCgroup(t, c.PID), "..", "kubepods"), "burstable", "besteffort"))
			}
		}
		add("mounts of virt-handlers", mounts(t, processOf(t, handlerPod(t, node.Name), "virt")))
	}
	qemu := processOf(t, launcherPod(t, vmi), "qemu-system-x86_64")
	found["mounts of the launcher"] = mounts(t, qemu)
	found["device nodes of the launcher"] = deviceNodes(t, fmt.Sprintf("/proc/%d/root/dev", qemu))
	// On cgroup v2 the rules are a program, which can't be read.
	if rules, err := os.ReadFile(filepath.Join(deviceCgroup(t, qemu), "devices.list")); err == nil {
		found["device rules of the launcher"] = strings.Split(strings.TrimSpace(string(rules)), "\n")
	}
	return found
}

func (now traces) moreThan(before traces) []string {
	var more []string
	for _, place := range slices.Sorted(maps.Keys(now)) {
		for _, thing := range left(before[place], now[place]) {
			more = append(more, place+": "+thing)
		}
	}
	return more
}

// awaitNoTraces waits until no trace is new.
func awaitNoTraces(t *testing.T, vmi *v1.VirtualMachineInstance, before traces) {
	t.Helper()
	eventually(t, "no more traces of volumes than before", func(context.Context) error {
		if more := tracesOf(t, vmi).moreThan(before); len(more) > 0 {
			return fmt.Errorf("left are\n%s", strings.Join(more, "\n"))
		}
		return nil
	})
}

// names matches the IDs that change when a container or a pod starts again.
var names = regexp.MustCompile(`[0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// Counts are compared, not IDs: a component that was killed has new containers.
func left(before, now []string) []string {
	count := map[string]int{}
	for _, thing := range before {
		count[names.ReplaceAllString(thing, "*")]++
	}
	var more []string
	for _, thing := range now {
		kind := names.ReplaceAllString(thing, "*")
		if count[kind]--; count[kind] < 0 {
			more = append(more, thing)
		}
	}
	return more
}

func mounts(t *testing.T, pid int) []string {
	t.Helper()
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	var places []string
	for line := range strings.Lines(string(table)) {
		places = append(places, strings.Fields(line)[4])
	}
	return places
}

func folders(t *testing.T, root string, within ...string) []string {
	t.Helper()
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		switch {
		case slices.Contains(within, e.Name()):
			found = append(found, folders(t, filepath.Join(root, e.Name()))...)
		case e.IsDir():
			found = append(found, e.Name())
		}
	}
	return found
}

// deviceNodes lists the device nodes under a folder, and the links by which the kubelet keeps devices for pods.
func deviceNodes(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // a file that vanishes during the walk is no trace
		}
		device := e.Type()&fs.ModeDevice != 0
		link := e.Type()&fs.ModeSymlink != 0 && strings.Contains(path, "/volumeDevices/")
		if device || link {
			found = append(found, strings.TrimPrefix(path, root))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// loopDevices lists the loop devices that are backed by a file of this cluster or this test, or by another device.
func loopDevices(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err != nil {
			continue // detached meanwhile
		}
		if strings.Contains(string(backing), os.Getenv("DRYDOCK_DIR")) || strings.Contains(string(backing), t.Name()) {
			found = append(found, strings.Split(file, "/")[3]+" on "+strings.TrimSpace(string(backing)))
		}
	}
	return found
}

func deviceCgroup(t *testing.T, pid int) string {
	t.Helper()
	process, err := procfs.NewProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	cgroups, err := process.Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	unified := ""
	for _, c := range cgroups {
		switch {
		case slices.Contains(c.Controllers, "devices"):
			return filepath.Join("/sys/fs/cgroup/devices", c.Path)
		case c.HierarchyID == 0:
			unified = filepath.Join("/sys/fs/cgroup", c.Path)
		}
	}
	return unified
}
