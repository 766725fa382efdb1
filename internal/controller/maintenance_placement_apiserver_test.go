//go:build apiserver

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// The disks wait for their first consumer.
func (w *world) haltedWithDisks(disks ...string) {
	w.t.Helper()
	w.createVMWithDisks("vm", w.storageClass(storagev1.VolumeBindingWaitForFirstConsumer), disks...)
	w.awaitProvisioning("vm")
	w.setStrategy("vm", v1.RunStrategyHalted)
	w.awaitGone("vm")
	for _, disk := range disks {
		w.awaitDV(disk, cdiv1.WaitForFirstConsumer)
	}
	w.awaitNoProvisioning()
}

func (w *world) awaitWait(pod *corev1.Pod, what string) {
	w.t.Helper()
	w.eventually(pod.Name+" to say "+what, func() (bool, string) {
		w.do("reading the pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
		return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == layout.MaintenanceLockCondition && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, what)
		}), fmt.Sprintf("conditions %+v", pod.Status.Conditions)
	})
}

func (w *world) awaitProvisioningFor(machine string, of *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	w.eventually("the provisioning pod of "+of.Name, func() (bool, string) {
		err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: launcherpod.ProvisioningNameFor(machine, of.UID)}, pod)
		return err == nil, fmt.Sprint(err)
	})
	if !metav1.IsControlledBy(pod, of) {
		w.t.Errorf("its owners are %+v", pod.OwnerReferences)
	}
	return pod
}

// fills plays the workers of DataVolumes.
func (w *world) fills(disks ...string) {
	w.t.Helper()
	for _, disk := range disks {
		w.ends(w.awaitWorker("importer-"+disk), 0, transfer.Result{Reason: transfer.ReasonCompleted})
		w.awaitDV(disk, cdiv1.Succeeded)
	}
}

// TestAMaintenancePodHasTheDisksOfAHaltedVMPlaced restarts the loops again and again meanwhile. The pod uses one of the
// disks; all must be placed together.
func TestAMaintenancePodHasTheDisksOfAHaltedVMPlaced(t *testing.T) {
	w := newWorld(t)
	w.haltedWithDisks("one", "two")
	pod := w.maintain("fix", "one")
	w.interrupt(3, 15*time.Millisecond)
	places := w.awaitProvisioningFor("vm", pod)
	if len(places.Spec.Volumes) != 2 || places.Labels[v1.VirtualMachineLabel] != "vm" {
		t.Errorf("the provisioning pod has the claims %+v, labels %v", places.Spec.Volumes, places.Labels)
	}
	w.awaitWait(pod, "finding a node on which the VM fits and these claims can be bound: one, two")
	w.podStatus(places, func(s *corev1.PodStatus) {
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, Message: "0/2 nodes are available"}}
	})
	w.awaitWait(pod, "0/2 nodes are available")
	w.bindClaim("one")
	w.awaitSettled()
	if names := w.provisioningPods(); len(names) != 1 {
		t.Errorf("before every claim was bound the provisioning pods are %v", names)
	}
	w.bindClaim("two")
	w.awaitNoProvisioning()
	w.awaitWait(pod, "DataVolume") // because it is filled, or because its worker waits
	w.interrupt(3, 15*time.Millisecond)
	w.fills("one", "two")
	w.awaitHolder(pod)
	if names := w.provisioningPods(); len(names) != 0 || w.vmi("vm") != nil {
		t.Errorf("provisioning pods %v or a VMI were made once more", names)
	}
	w.finishes(pod)
	w.letsGo(pod)
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopped)
}

// TestDisksArePlacedForOneAtATime checks that a start has its own provisioning pod, and that a deleted maintenance pod
// leaves none.
func TestDisksArePlacedForOneAtATime(t *testing.T) {
	w := newWorld(t)
	w.haltedWithDisks("one")
	first := w.maintain("a-first", "one")
	w.awaitProvisioningFor("vm", first)
	w.setStrategy("vm", v1.RunStrategyAlways)
	own := w.awaitProvisioning("vm")
	w.awaitWait(first, "the VM's run strategy is Always")
	w.eventually("the start's provisioning pod alone", func() (bool, string) {
		names := w.provisioningPods()
		return len(names) == 1 && names[0] == own.Name, strings.Join(names, ", ")
	})
	w.setStrategy("vm", v1.RunStrategyHalted)
	w.awaitProvisioningFor("vm", first)
	w.do("deleting the maintenance pod", w.client.Delete(w.ctx, first))
	w.awaitNoProvisioning()
	w.letsGo(first)

	second := w.maintain("b-second", "one")
	places := w.awaitProvisioningFor("vm", second)
	w.do("evicting the provisioning pod", w.client.Delete(w.ctx, places))
	w.eventually("another one", func() (bool, string) {
		return w.awaitProvisioningFor("vm", second).UID != places.UID, "it is still the one that was evicted"
	})
	w.bindClaim("one")
	w.fills("one")
	w.awaitHolder(second)
	w.finishes(second)
	w.letsGo(second)
}

// TestTheDisksOfAVMIInMaintenanceArePlaced uses a VMI without a VM.
func TestTheDisksOfAVMIInMaintenanceArePlaced(t *testing.T) {
	w := newWorld(t)
	w.createDV("root", w.storageClass(storagev1.VolumeBindingWaitForFirstConsumer), blank())
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "lone"}, Spec: testSpec()}
	vmi.Finalizers = []string{v1.VirtualMachineInstanceFinalizer}
	vmi.Spec.StartStrategy = new(lock.StartStrategy)
	vmi.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root"}}}}
	w.do("creating the VMI", w.client.Create(w.ctx, vmi))
	pod := w.maintainFor("lone", "fix", "root")
	w.awaitProvisioningFor("lone", pod)
	w.awaitSettled()
	if names := w.provisioningPods(); len(names) != 1 {
		t.Errorf("the provisioning pods are %v", names)
	}
	w.bindClaim("root")
	w.placeProvisioning()
	w.awaitNoProvisioning()
	w.fills("root")
	w.awaitPhase("lone", lock.Phase)
	w.finishes(pod)
	w.letsGo(pod)
}
