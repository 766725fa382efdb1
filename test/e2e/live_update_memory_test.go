//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/object/condition"
)

func withMemoryRoom(vm *v1.VirtualMachine) *v1.VirtualMachine {
	vm.Spec.Template.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("256Mi")), MaxGuest: new(resource.MustParse("512Mi"))}
	return vm
}

func (g *guest) setMemory(size string) {
	g.t.Helper()
	changeTemplate(g.t, g.namespace, g.name, func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Domain.Memory.Guest = new(resource.MustParse(size))
	})
}

// hasMemory waits until the guest has memory of this size and no memory change is pending. The guest's system must see
// the first KiB from its start, and exactly the plugged memory more.
func (g *guest) hasMemory(size string, first int) {
	g.t.Helper()
	vmi := awaitVMI(g.t, g.namespace, g.name, size+" of memory", func(vmi *v1.VirtualMachineInstance) bool {
		has := vmi.Status.Memory
		return has != nil && has.GuestCurrent.String() == size && has.GuestRequested.String() == size &&
			condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceMemoryChange) == nil
	})
	plugged := vmi.Status.Memory.GuestCurrent.Value() - vmi.Status.Memory.GuestAtBoot.Value()
	g.sees("the memory", "awk '/^MemTotal/ {print $2}' /proc/meminfo", strconv.Itoa(first+int(plugged>>10)))
}

// asksMemory waits until the guest's pod requests the guest's memory and its overhead, and has it allocated.
func (g *guest) asksMemory(size string) {
	g.t.Helper()
	const most = 250 << 20
	vmi, least := awaitRunning(g.t, g.namespace, g.name), resource.MustParse(size)
	eventually(g.t, "the launcher pod to have memory for a guest of "+size, func(context.Context) error {
		all := launcherPods(g.t, vmi) // the pod on the node that the guest left may still exist
		at := slices.IndexFunc(all, func(pod corev1.Pod) bool { return pod.Spec.NodeName == vmi.Status.NodeName })
		if at < 0 {
			return fmt.Errorf("node %s has none", vmi.Status.NodeName)
		}
		pod := &all[at]
		asks := pod.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory]
		var has resource.Quantity
		if r := pod.Status.ContainerStatuses[0].Resources; r != nil {
			has = r.Requests[corev1.ResourceMemory]
		}
		if beside := asks.Value() - least.Value(); asks.Cmp(has) != 0 || beside < 0 || beside > most {
			return fmt.Errorf("it asks for %s and has %s", asks.String(), has.String())
		}
		return nil
	})
}

// remembers writes to plugged memory in the guest, whose system allocates it first, and returns a checksum.
func (g *guest) remembers() string {
	g.t.Helper()
	g.run("dd if=/dev/urandom of=/dev/shm/plugged bs=1M count=60 2>/dev/null")
	return g.checksum()
}

func (g *guest) checksum() string {
	g.t.Helper()
	return g.run("md5sum </dev/shm/plugged")
}
