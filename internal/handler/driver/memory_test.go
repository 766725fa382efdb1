package driver

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	conditions "drydock.dev/drydock/internal/rules/object/condition"
)

const mebibyte = 1 << 20

// guestMemory changes the memory that a VMI wants, and sets its condition.
func guestMemory(size string) func(*v1.VirtualMachineInstance) {
	return func(instance *v1.VirtualMachineInstance) {
		instance.Spec.Domain.Memory.Guest = new(resource.MustParse(size))
		conditions.Set(&instance.Status.Conditions, v1.VirtualMachineInstanceCondition{
			Type: v1.VirtualMachineInstanceMemoryChange, Status: corev1.ConditionTrue,
		}, time.Now())
	}
}

// withMemory reports whether the VMI's status shows the given requested and current memory.
func withMemory(given, has string) func(*v1.VirtualMachineInstance) bool {
	return func(instance *v1.VirtualMachineInstance) bool {
		m := instance.Status.Memory
		return m != nil && m.GuestRequested.String() == given && m.GuestCurrent.String() == has && m.GuestAtBoot.String() == "64Mi"
	}
}

// grantMemory reports, as the kubelet, the memory of a pod's container.
func (h *handler) grantMemory(p *pod, memory string) {
	p.object = p.object.DeepCopy()
	p.object.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: layout.ComputeContainer, Resources: &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse(memory)},
	}}}
	h.supervisor.PodSeen(p.object)
}

// withRoom starts a guest of 64Mi with room for 192Mi.
func withRoom(t *testing.T, name string) (*node, *model, *pod, *handler) {
	t.Helper()
	vmi := scheduled(name)
	vmi.Spec.Domain.Memory.MaxGuest = new(resource.MustParse("192Mi"))
	n := newModelNode(t, vmi)
	m, p := n.launcher(), n.newPod(vmi)
	h := n.startHandler(p)
	n.api.await(t, "a guest that runs", well)
	return n, m, p, h
}

// TestMemoryFollowsTheVMI: a guest gets memory only when its pod has the resources, and releases some under the next
// virt-handler.
func TestMemoryFollowsTheVMI(t *testing.T) {
	n, m, p, h := withRoom(t, "memory")
	h.grantMemory(p, "100Mi")
	n.api.update(guestMemory("128Mi"))
	n.api.update(link(v1.InterfaceStateLinkDown))
	if seen := n.api.await(t, "the link down", linked(v1.InterfaceStateLinkDown)); !withMemory("64Mi", "64Mi")(seen) || m.qemu.GivenMemory() != 0 {
		t.Fatalf("the guest is given %d: %+v, and its pod has not", m.qemu.GivenMemory(), seen.Status.Memory)
	}
	h.grantMemory(p, "1Gi")
	n.api.await(t, "memory that is given", withMemory("128Mi", "64Mi"))
	awaitTrue(t, "memory in QEMU", func() bool { return m.qemu.GivenMemory() == 64*mebibyte })
	m.qemu.TakeMemory(64 * mebibyte)
	n.api.await(t, "memory that is taken", withMemory("128Mi", "128Mi"))

	h.stop()
	n.startHandler(p)
	n.api.update(guestMemory("96Mi"))
	n.api.await(t, "memory that is asked for", withMemory("96Mi", "128Mi"))
	if m.qemu.GivenMemory() != 32*mebibyte {
		t.Errorf("the guest is given %d", m.qemu.GivenMemory())
	}
	m.qemu.TakeMemory(32 * mebibyte)
	n.api.await(t, "memory that is released", withMemory("96Mi", "96Mi"))
	if m.starts() != 1 {
		t.Errorf("QEMU was started %d times", m.starts())
	}
}

// TestMemoryThatIsNotTakenIsTold: the guest has no system, or one without the driver. A change that is taken back does
// no harm.
func TestMemoryThatIsNotTakenIsTold(t *testing.T) {
	n, m, p, h := withRoom(t, "driverless")
	h.grantMemory(p, "1Gi")
	n.api.update(guestMemory("128Mi"))
	awaitTrue(t, "memory in QEMU", func() bool { return m.qemu.GivenMemory() == 64*mebibyte })
	n.pass(time.Hour)
	n.api.update(link(v1.InterfaceStateLinkDown))
	n.api.await(t, "that it is told", func(instance *v1.VirtualMachineInstance) bool {
		c := condition(instance, v1.VirtualMachineInstanceSynchronized)
		return c != nil && c.Status == corev1.ConditionFalse && c.Message ==
			"the guest does not take the memory that it is given: it has taken 0 of 64Mi for 1m0s; its system may have no driver for virtio-mem, or may not bring memory into use"
	})
	n.api.update(guestMemory("64Mi"))
	n.api.await(t, "nothing to be told", func(instance *v1.VirtualMachineInstance) bool {
		c := condition(instance, v1.VirtualMachineInstanceSynchronized)
		return (c == nil || c.Status == corev1.ConditionTrue) && withMemory("64Mi", "64Mi")(instance)
	})
	if m.qemu.GivenMemory() != 0 {
		t.Errorf("the guest is given %d", m.qemu.GivenMemory())
	}
}
