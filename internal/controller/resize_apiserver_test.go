//go:build apiserver

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// runInNode brings the VM's VMI to Running on a node of the test's own with this much CPU, and its guest to one socket.
// It returns the pod's name.
func (w *world) runInNode(cpu string) string {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-node"}}
	w.do("creating the node", w.client.Create(w.ctx, node))
	w.t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), node) })
	before := node.DeepCopy()
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Gi")}
	w.do("writing the node's status", w.client.Status().Patch(w.ctx, node, client.MergeFrom(before)))
	pod := w.runOn("vm", node.Name)
	w.hasSockets(1)
	w.grants(pod.Name, "")
	return pod.Name
}

func (w *world) hasSockets(n uint32) {
	w.t.Helper()
	vmi := w.vmi("vm")
	before := vmi.DeepCopy()
	vmi.Status.CurrentCPUTopology = &v1.CPUTopology{Sockets: n, Cores: 1, Threads: 1}
	condition.Set(&vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{Type: vmistatus.Accelerated, Status: corev1.ConditionTrue}, time.Now())
	w.do("reporting the guest's sockets", w.client.Patch(w.ctx, vmi, client.MergeFrom(before)))
}

// grants plays the kubelet: it allocates the request, or reports why the node can't.
func (w *world) grants(name, pending string) {
	w.t.Helper()
	pod := w.launcher(name)
	w.podStatus(pod, func(s *corev1.PodStatus) {
		s.Conditions = nil
		if pending != "" {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: "Deferred", Message: pending}}
			return
		}
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: layout.ComputeContainer, Resources: &pod.Spec.Containers[0].Resources}}
	})
}

func (w *world) launcher(name string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	w.do("reading the launcher pod", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, pod))
	return pod
}

func (w *world) awaitRequest(name, cpu string) {
	w.t.Helper()
	w.eventually("the pod to ask for "+cpu, func() (bool, string) {
		asks := w.launcher(name).Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]
		return asks.Cmp(resource.MustParse(cpu)) == 0, "it asks for " + asks.String()
	})
}

// awaitCPUChange waits until the VMI's condition about its CPUs has this reason and message; "" waits until there is
// none.
func (w *world) awaitCPUChange(reason, part string) {
	w.t.Helper()
	w.awaitChange(v1.VirtualMachineInstanceVCPUChange, reason, part)
}

// "" waits until there is no condition.
func (w *world) awaitChange(change v1.VirtualMachineInstanceConditionType, reason, part string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s to be %s", change, reason), func() (bool, string) {
		c := condition.Find(w.vmi("vm").Status.Conditions, change)
		if c == nil {
			return reason == "", "there is none"
		}
		return c.Reason == reason && strings.Contains(c.Message, part), c.Reason + ": " + c.Message
	})
}

func withSockets(n uint32) func(*v1.VirtualMachineInstanceSpec) {
	return func(spec *v1.VirtualMachineInstanceSpec) { spec.Domain.CPU = &v1.CPU{Sockets: n} }
}

// TestThePodOfAGuestGrowsAndShrinksWithIt plays the kubelet and virt-handler for a guest that gets CPUs and gives them
// back. The pod's request must follow.
func TestThePodOfAGuestGrowsAndShrinksWithIt(t *testing.T) {
	w := newWorld(t)
	w.setRollout(v1.VMRolloutStrategyLiveUpdate)
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.runInNode("16")
	if room := w.vmi("vm").Spec.Domain.CPU; room == nil || room.MaxSockets != 4 {
		t.Fatalf("the guest is started with %+v", room)
	}

	w.changeTemplate(withSockets(3))
	w.awaitRequest(pod, "300m")
	w.awaitRestartRequired("")
	w.grants(pod, "the node is full")
	w.awaitCPUChange("PodResizePendingDeferred", "the node is full")
	w.grants(pod, "")
	w.awaitCPUChange("GuestChanges", "CPUs in 1 sockets, and is to have them in 3")
	w.hasSockets(3)
	w.awaitCPUChange("", "")

	// The guest must release them first.
	w.changeTemplate(withSockets(2))
	w.awaitCPUChange("GuestChanges", "CPUs in 3 sockets, and is to have them in 2")
	w.awaitRequest(pod, "300m")
	w.hasSockets(2)
	w.awaitRequest(pod, "200m")
	w.awaitCPUChange("", "")

	// A reverted change leaves nothing behind.
	w.changeTemplate(withSockets(4))
	w.awaitRequest(pod, "400m")
	w.changeTemplate(withSockets(2))
	w.awaitRequest(pod, "200m")
	w.awaitCPUChange("", "")
	w.awaitSettled()

	w.changeTemplate(withSockets(5))
	w.awaitRestartRequired("spec.template.spec.domain.cpu.sockets, because the guest was started with room for fewer sockets")
}

func TestAQuotaThatRefusesCPUIsToldAndWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.setRollout(v1.VMRolloutStrategyLiveUpdate)
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.runInNode("16")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "small", Namespace: w.namespace}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("150m")}
	w.do("creating the quota", w.client.Create(w.ctx, quota))
	w.eventually("the quota to be in force", func() (bool, string) {
		w.do("reading the quota", w.client.Get(w.ctx, client.ObjectKeyFromObject(quota), quota))
		used := quota.Status.Used[corev1.ResourceRequestsCPU]
		return used.Cmp(resource.MustParse("100m")) == 0, "it has counted " + used.String()
	})

	w.changeTemplate(withSockets(2))
	w.awaitCPUChange("PodResizeRefused", "exceeded quota: small")
	w.awaitRequest(pod, "100m")
	raised := quota.DeepCopy()
	raised.Spec.Hard[corev1.ResourceRequestsCPU] = resource.MustParse("1")
	w.do("raising the quota", w.client.Patch(w.ctx, raised, client.MergeFrom(quota)))
	w.awaitRequest(pod, "200m")
	w.grants(pod, "")
	w.awaitCPUChange("GuestChanges", "CPUs in 1 sockets, and is to have them in 2")
	w.hasSockets(2)
	w.awaitCPUChange("", "")
}

func TestANodeThatIsTooSmallNeedsAMigration(t *testing.T) {
	w := newWorld(t)
	w.setRollout(v1.VMRolloutStrategyLiveUpdate)
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.runInNode("250m")
	w.changeTemplate(withSockets(3))
	w.awaitCPUChange("PodResizeExceedsNode", "node didn't have enough allocatable resources: cpu")
	w.eventually("a migration to be required", func() (bool, string) {
		c := condition.Find(w.vmi("vm").Status.Conditions, v1.VirtualMachineInstanceMigrationRequired)
		return c != nil && c.Status == corev1.ConditionTrue, fmt.Sprintf("%+v", c)
	})
	w.changeTemplate(withSockets(2))
	w.awaitRequest(pod, "200m")
	w.eventually("no migration to be required", func() (bool, string) {
		c := condition.Find(w.vmi("vm").Status.Conditions, v1.VirtualMachineInstanceMigrationRequired)
		return c == nil, fmt.Sprintf("%+v", c)
	})
}
