//go:build apiserver

package controller

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hasMemory plays a virt-handler that reports a guest that was started with 1Gi, and its requested and present memory.
func (w *world) hasMemory(given, has string) {
	w.t.Helper()
	vmi := w.vmi("vm")
	before := vmi.DeepCopy()
	vmi.Status.Memory = &v1.MemoryStatus{
		GuestAtBoot: new(resource.MustParse("1Gi")), GuestRequested: new(resource.MustParse(given)), GuestCurrent: new(resource.MustParse(has)),
	}
	w.do("reporting the guest's memory", w.client.Patch(w.ctx, vmi, client.MergeFrom(before)))
}

// awaitMemory waits until the pod requests the memory of a guest of this many GiB, plus an overhead of less than one
// GiB.
func (w *world) awaitMemory(name string, gib int64) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("the pod to ask for %d GiB", gib), func() (bool, string) {
		asks := w.launcher(name).Spec.Containers[0].Resources.Requests[corev1.ResourceMemory]
		return asks.Value()>>30 == gib, "it asks for " + asks.String()
	})
}

// awaitMemoryChange waits until the VMI's condition about its memory has this reason and message; "" waits until there
// is none.
func (w *world) awaitMemoryChange(reason, part string) {
	w.t.Helper()
	w.awaitChange(v1.VirtualMachineInstanceMemoryChange, reason, part)
}

func withMemory(size string) func(*v1.VirtualMachineInstanceSpec) {
	return func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse(size))}
	}
}

func (w *world) runWithRoom() (pod string) {
	w.t.Helper()
	w.setRollout(v1.VMRolloutStrategyLiveUpdate)
	w.createVM("vm", v1.RunStrategyHalted)
	w.changeTemplate(withMemory("1Gi"))
	w.setStrategy("vm", v1.RunStrategyAlways)
	pod = w.runInNode("16")
	w.hasMemory("1Gi", "1Gi")
	if m := w.vmi("vm").Spec.Domain.Memory; m.MaxGuest == nil || m.MaxGuest.String() != "4Gi" {
		w.t.Fatalf("the guest is started with %+v", m)
	}
	return pod
}

// TestThePodOfAGuestFollowsItsMemory plays the kubelet and virt-handler for a guest that gets memory and gives it back.
// The pod's request must follow.
func TestThePodOfAGuestFollowsItsMemory(t *testing.T) {
	w := newWorld(t)
	pod := w.runWithRoom()

	w.changeTemplate(withMemory("3Gi"))
	w.awaitMemory(pod, 3)
	w.awaitRestartRequired("")
	w.grants(pod, "the node is full")
	w.awaitMemoryChange("PodResizePendingDeferred", "the node is full")
	w.grants(pod, "")
	w.awaitMemoryChange("GuestChanges", "The guest has 1Gi of memory, and is to have 3Gi.")
	w.hasMemory("3Gi", "1Gi")
	w.hasMemory("3Gi", "3Gi")
	w.awaitMemoryChange("", "")

	// The guest must release it first, as far as it can.
	w.changeTemplate(withMemory("1Gi"))
	w.awaitMemoryChange("GuestChanges", "The guest has 3Gi of memory, and is to have 1Gi.")
	w.awaitMemory(pod, 3)
	w.hasMemory("1Gi", "2Gi")
	w.awaitMemory(pod, 2)
	w.hasMemory("1Gi", "1Gi")
	w.awaitMemory(pod, 1)
	w.grants(pod, "")
	w.awaitMemoryChange("", "")

	// A reverted change leaves nothing behind.
	w.changeTemplate(withMemory("4Gi"))
	w.awaitMemory(pod, 4)
	w.changeTemplate(withMemory("1Gi"))
	w.awaitMemory(pod, 1)
	w.awaitMemoryChange("", "")
	w.awaitSettled()

	w.changeTemplate(withMemory("5Gi"))
	w.awaitRestartRequired("spec.template.spec.domain.memory.guest, because the guest was started with room for less memory (maxGuest)")
	w.changeTemplate(withMemory("1023Mi"))
	w.awaitRestartRequired("spec.template.spec.domain.memory.guest, because the guest keeps the memory that it was started with")
	w.awaitMemory(pod, 1)
}

func TestAQuotaThatRefusesMemoryIsToldAndWaitedFor(t *testing.T) {
	w := newWorld(t)
	pod := w.runWithRoom()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "small", Namespace: w.namespace}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourceRequestsMemory: resource.MustParse("2Gi")}
	w.do("creating the quota", w.client.Create(w.ctx, quota))
	w.eventually("the quota to be in force", func() (bool, string) {
		w.do("reading the quota", w.client.Get(w.ctx, client.ObjectKeyFromObject(quota), quota))
		used := quota.Status.Used[corev1.ResourceRequestsMemory]
		return used.Value()>>30 == 1, "it has counted " + used.String()
	})

	w.changeTemplate(withMemory("2Gi"))
	w.awaitMemoryChange("PodResizeRefused", "exceeded quota: small")
	w.awaitMemory(pod, 1)
	raised := quota.DeepCopy()
	raised.Spec.Hard[corev1.ResourceRequestsMemory] = resource.MustParse("4Gi")
	w.do("raising the quota", w.client.Patch(w.ctx, raised, client.MergeFrom(quota)))
	w.awaitMemory(pod, 2)
	w.grants(pod, "")
	w.awaitMemoryChange("GuestChanges", "The guest has 1Gi of memory, and is to have 2Gi.")
	w.hasMemory("2Gi", "2Gi")
	w.awaitMemoryChange("", "")
}
