//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/object/condition"
)

func changeTemplate(t *testing.T, namespace, name string, change func(*v1.VirtualMachineInstanceSpec)) {
	t.Helper()
	vm := &v1.VirtualMachine{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, vm); err != nil {
		t.Fatalf("reading the VM %s: %v", name, err)
	}
	before := vm.DeepCopy()
	change(&vm.Spec.Template.Spec)
	if err := cluster.client.Patch(t.Context(), vm, client.MergeFrom(before)); err != nil {
		t.Fatalf("changing the template of the VM %s: %v", name, err)
	}
}

func (g *guest) link(state v1.InterfaceState) {
	g.t.Helper()
	changeTemplate(g.t, g.namespace, g.name, func(spec *v1.VirtualMachineInstanceSpec) { spec.Domain.Devices.Interfaces[0].State = state })
	g.hasLink(state)
}

func (g *guest) hasLink(state v1.InterfaceState) {
	g.t.Helper()
	awaitVMI(g.t, g.namespace, g.name, "the link "+string(state), func(vmi *v1.VirtualMachineInstance) bool {
		return len(vmi.Status.Interfaces) > 0 && vmi.Status.Interfaces[0].LinkState == string(state)
	})
	carrier := map[v1.InterfaceState]string{v1.InterfaceStateLinkUp: "1", v1.InterfaceStateLinkDown: "0"}[state]
	g.sees("the link "+string(state), "cat /sys/class/net/eth0/carrier", carrier)
}

// TestChangesReachAGuestThatRuns changes a VM's link, CPUs and memory, which a migration and a restart must keep,
// and its node selector, which a migration must follow. The rules and the driver's tests cover the rest; only
// here the guest shows that it has them.
func TestChangesReachAGuestThatRuns(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	g := bootVM(t, withMemoryRoom(newMigratableVM(t, ns, "live")))
	boot, memory, pod := g.bootID(), g.memoryKiB(), launcherPod(t, awaitRunning(t, ns, "live"))
	g.link(v1.InterfaceStateLinkDown)
	g.setMemory("512Mi")
	g.setSockets(2)
	g.hasMemory("512Mi", memory)
	g.asksMemory("512Mi")
	g.hasCPUs(2)
	g.setMemory("384Mi")
	g.hasMemory("384Mi", memory)
	g.asksMemory("384Mi")
	stayed := awaitRunning(t, ns, "live")
	if now := launcherPod(t, stayed); stayed.Status.MigrationState != nil || now.UID != pod.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the guest has not stayed in the pod %s: it is in %s, and %+v", pod.Name, now.Name, stayed.Status.MigrationState)
	}
	written := g.remembers()

	other := map[string]string{node1: node2, node2: node1}[awaitMigratable(t, ns, "live").Status.NodeName]
	changeTemplate(t, ns, "live", func(spec *v1.VirtualMachineInstanceSpec) {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: other}
	})
	vmi := awaitVMI(t, ns, "live", "the node selector", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Spec.NodeSelector[corev1.LabelHostname] == other
	})
	if vmi.Status.NodeName == other || condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceMigrationRequired) != nil {
		t.Errorf("the guest does not stay on %s: %+v", vmi.Status.NodeName, vmi.Status.Conditions)
	}
	awaitNoRestartRequired(t, ns, "live")
	if moved := migrated(t, ns, "live"); moved.Status.NodeName != other {
		t.Errorf("the guest went to %s, want %s", moved.Status.NodeName, other)
	}
	g = login(t, ns, "live") // a console ends when the guest leaves the node
	g.hasLink(v1.InterfaceStateLinkDown)
	g.link(v1.InterfaceStateLinkUp)
	g.hasCPUs(2)
	g.hasMemory("384Mi", memory)
	if read := g.checksum(); read != written {
		t.Errorf("what the guest wrote to plugged memory was %s, and is %s", written, read)
	}
	g.run("rm /dev/shm/plugged")
	g.setMemory("256Mi")
	g.setSockets(3)
	g.hasMemory("256Mi", memory)
	g.asksMemory("256Mi")
	g.hasCPUs(3)
	if again := g.bootID(); again != boot {
		t.Errorf("the guest has been started again: %s, was %s", again, boot)
	}

	cores := func(n uint32) func(*v1.VirtualMachineInstanceSpec) {
		return func(spec *v1.VirtualMachineInstanceSpec) { spec.Domain.CPU.Cores = n }
	}
	changeTemplate(t, ns, "live", cores(2))
	eventually(t, "RestartRequired", func(context.Context) error {
		vm := &v1.VirtualMachine{}
		if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "live"}, vm); err != nil {
			return err
		}
		if c := condition.Find(vm.Status.Conditions, v1.VirtualMachineRestartRequired); c == nil ||
			c.Message != "these changes take effect when the VM is restarted: spec.template.spec.domain.cpu.cores, because it can't be changed while the guest runs" {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
	changeTemplate(t, ns, "live", cores(0))
	awaitNoRestartRequired(t, ns, "live")

	g.link(v1.InterfaceStateLinkDown)
	g.setMemory("384Mi")
	g.hasMemory("384Mi", memory)
	restartAndAwait(t, ns, "live")
	g = login(t, ns, "live")
	g.hasMemory("384Mi", g.memoryKiB())
	if has := g.memoryKiB(); has < memory+100<<10 {
		t.Errorf("the guest was started with 384Mi, and has %d KiB, where 256Mi were %d", has, memory)
	}
	g.hasLink(v1.InterfaceStateLinkDown)
	g.hasCPUs(3)
}
