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

// sockets changes the number of sockets that a VMI wants, and sets its condition.
func sockets(n uint32) func(*v1.VirtualMachineInstance) {
	return func(instance *v1.VirtualMachineInstance) {
		instance.Spec.Domain.CPU.Sockets = n
		conditions.Set(&instance.Status.Conditions, v1.VirtualMachineInstanceCondition{
			Type: v1.VirtualMachineInstanceVCPUChange, Status: corev1.ConditionTrue,
		}, time.Now())
	}
}

// withSockets reports whether the VMI's status shows the given number of sockets.
func withSockets(n uint32) func(*v1.VirtualMachineInstance) bool {
	return func(instance *v1.VirtualMachineInstance) bool {
		return instance.Status.CurrentCPUTopology != nil && instance.Status.CurrentCPUTopology.Sockets == n
	}
}

// grant reports, as the kubelet, the CPU of a pod's container.
func (h *handler) grant(p *pod, cpu string) {
	p.object = p.object.DeepCopy()
	p.object.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: layout.ComputeContainer, Resources: &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Gi")},
	}}}
	h.supervisor.PodSeen(p.object)
}

// TestCPUsFollowTheVMI: a guest gets CPUs only when its pod has the resources. The next virt-handler asks it to release
// none, since it is emulated.
func TestCPUsFollowTheVMI(t *testing.T) {
	t.Parallel()
	vmi := scheduled("cpus")
	vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 1, Cores: 1, Threads: 1, MaxSockets: 4}
	n := newNode(t, vmi)
	p, h := n.running()
	h.grant(p, "100m")
	n.api.update(sockets(3))
	n.api.update(link(v1.InterfaceStateLinkDown))
	if seen := n.api.await(t, "the link down", linked(v1.InterfaceStateLinkDown)); !withSockets(1)(seen) {
		t.Fatalf("the guest has %+v, and its pod has not", seen.Status.CurrentCPUTopology)
	}
	h.grant(p, "300m")
	n.api.await(t, "three sockets", withSockets(3))

	h.stop()
	h = n.startHandler(p)
	n.api.update(sockets(2))
	n.api.update(link(v1.InterfaceStateLinkUp))
	if seen := n.api.await(t, "the link up", linked(v1.InterfaceStateLinkUp)); !withSockets(3)(seen) {
		t.Fatalf("the guest has %+v, and has given nothing back", seen.Status.CurrentCPUTopology)
	}
	n.api.update(sockets(4))
	n.api.update(link(v1.InterfaceStateLinkDown))
	h.grant(p, "400m")
	n.api.await(t, "four sockets", withSockets(4))
	if got := len(p.qemus()); got != 1 {
		t.Errorf("%d QEMUs run", got)
	}
}
