//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// cardResource is permitted by the test, cardAddresses are its devices on node1, and cardGroups their IOMMU groups. No
// PC has a PCI domain or groups of such numbers.
const (
	cardResource = "example.test/card"
	cardKind     = "1af4:fffe"
)

var (
	cardAddresses = []string{"fffd:ff:1e.0", "fffd:ff:1f.0"}
	cardGroups    = []string{"990017", "990018"}
)

// cards stand in for PCI devices of node1, where its virt-handler reads them.
type cards struct {
	t *testing.T
	// dir has a folder for each device.
	dir string
}

// plugCards mounts a folder where virt-handler of node1 looks for PCI devices, until the test ends. The node gets device
// nodes that behave as /dev/null in place of VFIO's.
func plugCards(t *testing.T) cards {
	t.Helper()
	root := fmt.Sprintf("/proc/%d/root", pidOf(t, node1, "containerd")) // the test kills the kubelet
	const seen = "/var/lib/kubelet/drydock-test-pci"                    // a folder of the node that virt-handler sees
	c := cards{t: t, dir: filepath.Join(root, seen)}
	t.Cleanup(func() {
		if err := os.RemoveAll(c.dir); err != nil {
			t.Errorf("removing the devices of %s: %v", node1, err)
		}
	})
	vfio := filepath.Join(root, layout.VFIODir)
	makeUnlessThere(t, vfio, func() error { return os.Mkdir(vfio, 0o755) })
	for _, name := range append([]string{"vfio"}, cardGroups...) {
		path := filepath.Join(vfio, name)
		makeUnlessThere(t, path, func() error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) })
	}
	for i := range cardAddresses {
		c.bind(i, "vfio-pci")
	}
	handler := processOf(t, handlerPod(t, node1), "virt")
	const list = "/sys/bus/pci/devices"
	if err := inMounts(handler, func() error { return unix.Mount(seen, list, "", unix.MS_BIND, "") }); err != nil {
		t.Fatalf("giving %s PCI devices: %v", node1, err)
	}
	t.Cleanup(func() {
		if err := inMounts(handler, func() error { return unix.Unmount(list, unix.MNT_DETACH) }); err != nil {
			t.Errorf("giving %s its own PCI devices again: %v", node1, err)
		}
	})
	return c
}

// makeUnlessThere makes a file of a node until the test ends. The node's /dev is the machine's, which may have VFIO.
func makeUnlessThere(t *testing.T, path string, make func() error) {
	t.Helper()
	err := make()
	if errors.Is(err, os.ErrExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	})
}

// bind adds a device, or gives it another driver.
func (c cards) bind(i int, driver string) {
	c.t.Helper()
	dir := filepath.Join(c.dir, cardAddresses[i])
	err := os.MkdirAll(dir, 0o755)
	vendor, device, _ := strings.Cut(cardKind, ":")
	for name, text := range map[string]string{"vendor": "0x" + vendor, "device": "0x" + device, "class": "0x030000", "numa_node": "-1"} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644)
		}
	}
	for name, target := range map[string]string{"driver": driver, "iommu_group": cardGroups[i]} {
		if err == nil {
			err = os.RemoveAll(filepath.Join(dir, name))
		}
		if err == nil {
			err = os.Symlink("../../"+target, filepath.Join(dir, name))
		}
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// inMounts calls do in the mount namespace of a process. Its thread ends: it can't come back.
func inMounts(pid int, do func() error) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS)
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// TestADeviceOfANodeIsOfferedAllocatedAndPassed follows a PCI device from the permission to QEMU's arguments, and its
// health to the node. QEMU must fail because the machine has no such device. It shows what no other level can: the real
// kubelet takes virt-handler's plugin, again after its own restart, and gives the device nodes and the environment to the
// launcher's container.
//
// It configures the cluster and kills a kubelet, so it runs alone.
func TestADeviceOfANodeIsOfferedAllocatedAndPassed(t *testing.T) {
	ns := newNamespace(t)
	c := plugCards(t)
	vmi := newVMI(ns, "card")
	vmi.Spec.Domain.Devices.GPUs = []v1.GPU{{Name: "gpu", DeviceName: cardResource}}
	vmi.Spec.Domain.Devices.HostDevices = []v1.HostDevice{{Name: "dev", DeviceName: cardResource}}
	create(t, vmi)
	const refusal = "spec.domain.devices.hostDevices[0].deviceName: HostDevice " + cardResource + " is not permitted in permittedHostDevices configuration"
	awaitVMI(t, ns, "card", "what is not permitted", func(vmi *v1.VirtualMachineInstance) bool {
		c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
		return c != nil && strings.Contains(c.Message, refusal)
	})
	if pods := launcherPods(t, vmi); len(pods) > 0 {
		t.Errorf("a pod was made for a device that is not permitted: %s", pods[0].Name)
	}

	const permission = `{"spec":{"configuration":{"permittedHostDevices":%s}}}`
	configure(t, fmt.Sprintf(permission, `{"pciHostDevices":[{"pciVendorSelector":"1AF4:FFFE","resourceName":"`+cardResource+`"}]}`), fmt.Sprintf(permission, "null"))
	failed := awaitVMI(t, ns, "card", "QEMU's word", func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.Phase == v1.Failed })
	pod := launcherPod(t, failed)
	asks := pod.Spec.Containers[0].Resources
	if requests, limits := asks.Requests[cardResource], asks.Limits[cardResource]; requests.Value() != 2 || limits.Value() != 2 || pod.Spec.NodeName != node1 {
		t.Errorf("the pod on %s requests %s and is limited to %s", pod.Spec.NodeName, &requests, &limits)
	}
	want := fmt.Sprintf(`"driver":"vfio-pci","host":"%s","id":"hostdev-dev"}: vfio /sys/bus/pci/devices/%s: no such host device`, cardAddresses[0], cardAddresses[0])
	said := ""
	for _, c := range failed.Status.Conditions {
		said += c.Message + "\n"
	}
	if !strings.Contains(said, want) {
		t.Errorf("the VMI says\n%s, want\n%s", said, want)
	}

	for _, step := range []struct {
		name                  string
		change                func()
		capacity, allocatable int64
	}{
		{"as they were", func() {}, 2, 2},
		{"after one has got a driver of the node", func() { c.bind(1, "virtio-pci") }, 2, 1},
		{"after the kubelet was killed", func() { killKubelet(t) }, 2, 1},
		{"after the driver is VFIO's again", func() { c.bind(1, "vfio-pci") }, 2, 2},
		{"after one has gone", func() {
			if err := os.RemoveAll(filepath.Join(c.dir, cardAddresses[0])); err != nil {
				t.Fatal(err)
			}
		}, 2, 1},
		{"after it has come back", func() { c.bind(0, "vfio-pci") }, 2, 2},
		{"after the permission is withdrawn", func() { configureFurther(t, fmt.Sprintf(permission, "null")) }, 2, 0},
	} {
		step.change()
		awaitCards(t, step.name, step.capacity, step.allocatable)
	}
}

func awaitCards(t *testing.T, when string, capacity, allocatable int64) {
	t.Helper()
	await(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node1}}, &corev1.NodeList{}, "its devices, "+when, func(node *corev1.Node) bool {
		has, gives := node.Status.Capacity[cardResource], node.Status.Allocatable[cardResource]
		return has.Value() == capacity && gives.Value() == allocatable
	})
}

// killKubelet kills the kubelet of node1, and waits until the next one has reported.
func killKubelet(t *testing.T) {
	t.Helper()
	was := kubeletPID(t, node1)
	if err := syscall.Kill(was, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another kubelet on "+node1, func(context.Context) error {
		for _, n := range status(t).Nodes {
			for _, c := range n.Components {
				if n.Name == node1 && c.Name == "kubelet" && c.PID != was && c.PID > 0 {
					return nil
				}
			}
		}
		return fmt.Errorf("there is none beside %d", was)
	})
}
