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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

func (w *world) createVMWithDisks(name, class string, disks ...string) {
	w.t.Helper()
	spec := testSpec()
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
	source := blank()
	for _, disk := range disks {
		vm.Spec.DataVolumeTemplates = append(vm.Spec.DataVolumeTemplates, v1.DataVolumeTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Name: disk},
			Spec: cdiv1.DataVolumeSpec{Source: &source, Storage: &cdiv1.StorageSpec{
				StorageClassName: &class,
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				},
			}},
		})
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: disk, VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: disk}}})
		w.t.Cleanup(func() {
			w.sweepDV(&cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: disk, Namespace: w.namespace}})
		})
	}
	vm.Spec.RunStrategy = new(v1.RunStrategyAlways)
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: spec}
	w.do("creating the VM", w.client.Create(w.ctx, vm))
}

func (w *world) awaitProvisioning(name string) *corev1.Pod {
	w.t.Helper()
	var pod corev1.Pod
	w.eventually("the provisioning pod", func() (bool, string) {
		vmi := w.vmi(name)
		if vmi == nil {
			return false, "there is no VMI"
		}
		err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: launcherpod.ProvisioningName(vmi)}, &pod)
		return err == nil, fmt.Sprintf("%v, conditions %+v", err, vmi.Status.Conditions)
	})
	return &pod
}

func (w *world) provisioning() []corev1.Pod {
	w.t.Helper()
	return slices.DeleteFunc(w.pods(), func(pod corev1.Pod) bool { return pod.Annotations[v1.EphemeralProvisioningObject] == "" })
}

func (w *world) provisioningPods() []string {
	var names []string
	for _, pod := range w.provisioning() {
		names = append(names, pod.Name)
	}
	return names
}

// Provisioning pods get their node when their claims are bound.
func (w *world) placeProvisioning() {
	w.t.Helper()
	pods := w.provisioning()
	for i := range pods {
		if pods[i].Spec.NodeName == "" {
			w.bind(&pods[i])
		}
	}
}

func (w *world) awaitNoProvisioning() {
	w.t.Helper()
	w.eventually("the provisioning pod to go", func() (bool, string) {
		names := w.provisioningPods()
		return len(names) == 0, strings.Join(names, ", ")
	})
}

func TestAVMsDisksAreBoundBeforeTheyAreFilled(t *testing.T) {
	w := newWorld(t)
	seen := w.phases("one")
	w.createVMWithDisks("vm", w.storageClass(storagev1.VolumeBindingWaitForFirstConsumer), "one", "two")

	pod := w.awaitProvisioning("vm")
	w.awaitPrintable("vm", v1.VirtualMachineStatusWaitingForVolumeBinding)
	claims := 0
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			claims++
		}
	}
	if claims != 2 || !metav1.IsControlledBy(pod, w.vmi("vm")) {
		t.Errorf("the provisioning pod has %d claims, owners %v", claims, pod.OwnerReferences)
	}
	w.awaitSettled()
	w.restartLoops()
	w.awaitSettled()
	if names := w.provisioningPods(); len(names) != 1 || names[0] != pod.Name {
		t.Errorf("after a restart the provisioning pods are %v", names)
	}

	// The scheduler finds no node, reports it, and finds one.
	w.podStatus(pod, func(s *corev1.PodStatus) {
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, Message: "0/2 nodes are available"}}
	})
	vm := w.awaitPrintable("vm", v1.VirtualMachineStatusUnschedulable)
	if !strings.Contains(fmt.Sprint(vm.Status.Conditions), "0/2 nodes are available") {
		t.Errorf("the VM does not have the scheduler's words: %+v", vm.Status.Conditions)
	}
	w.bindClaim("one")
	w.awaitSettled()
	if len(w.provisioningPods()) != 1 {
		t.Error("the provisioning pod has gone before every claim was bound")
	}
	w.bindClaim("two")
	w.awaitNoProvisioning()
	w.awaitPrintable("vm", v1.VirtualMachineStatusProvisioning)

	for _, name := range []string{"one", "two"} {
		worker := w.awaitWorker("importer-" + name)
		w.works(worker)
		w.ends(worker, 0, transfer.Result{Reason: transfer.ReasonCompleted})
		w.awaitDV(name, cdiv1.Succeeded)
	}
	w.awaitLauncher("vm")
	w.awaitPrintable("vm", v1.VirtualMachineStatusStarting)
	if names := w.provisioningPods(); len(names) != 0 {
		t.Errorf("provisioning pods are left: %v", names)
	}
	t.Logf("phases of a disk: %v", seen())
	t.Logf("writes: %s", strings.Join(w.writes.of(w.namespace), ", "))
}

// TestTheLoopsMayEndWhileDisksArePlaced restarts the loops again and again while disks of several VMs are placed, each
// time a little later. All VMs must start.
func TestTheLoopsMayEndWhileDisksArePlaced(t *testing.T) {
	const vms = 4
	w := newWorld(t)
	class := w.storageClass(storagev1.VolumeBindingWaitForFirstConsumer)
	for i := range vms {
		w.createVMWithDisks(fmt.Sprintf("vm-%d", i), class, fmt.Sprintf("disk-%d", i))
	}
	w.interrupt(8, 15*time.Millisecond)
	for i := range vms {
		w.awaitProvisioning(fmt.Sprintf("vm-%d", i))
	}
	if names := w.provisioningPods(); len(names) != vms {
		t.Errorf("%d VMs have the provisioning pods %v", vms, names)
	}
	for i := range vms {
		w.bindClaim(fmt.Sprintf("disk-%d", i))
		w.restartLoops()
	}
	w.awaitSettled()
	if names := w.provisioningPods(); len(names) != vms {
		t.Errorf("before they have their nodes the provisioning pods are %v", names)
	}
	w.placeProvisioning()
	w.awaitNoProvisioning()
	for i := range vms {
		worker := w.awaitWorker(fmt.Sprintf("importer-disk-%d", i))
		w.ends(worker, 0, transfer.Result{Reason: transfer.ReasonCompleted})
		w.restartLoops()
	}
	for i := range vms {
		w.awaitLauncher(fmt.Sprintf("vm-%d", i))
	}
	w.awaitSettled()
	if names := w.provisioningPods(); len(names) != 0 {
		t.Errorf("provisioning pods are left: %v", names)
	}
}

func TestAStoppedVMLeavesNoProvisioningPod(t *testing.T) {
	w := newWorld(t)
	w.createVMWithDisks("stopped", w.storageClass(storagev1.VolumeBindingWaitForFirstConsumer), "one")
	first := w.awaitProvisioning("stopped")
	w.setStrategy("stopped", v1.RunStrategyHalted)
	w.awaitGone("stopped")
	w.awaitNoProvisioning()
	w.awaitPrintable("stopped", v1.VirtualMachineStatusStopped)

	w.setStrategy("stopped", v1.RunStrategyAlways)
	second := w.awaitProvisioning("stopped")
	if first.Name == second.Name {
		t.Error("the second VMI's pod has the name of the first's")
	}
	// An eviction: the pod must be made again.
	w.do("evicting the pod", w.client.Delete(w.ctx, second))
	w.eventually("another provisioning pod", func() (bool, string) {
		again := w.awaitProvisioning("stopped")
		return again.UID != second.UID, "it is still the one that was evicted"
	})
}

func TestAVMWaitsForItsDisksAndSaysWhatIsWrong(t *testing.T) {
	w := newWorld(t)
	w.createVMWithDisks("vm", w.storageClass(storagev1.VolumeBindingImmediate), "one")
	w.awaitPrintable("vm", v1.VirtualMachineStatusWaitingForVolumeBinding)
	w.bindClaim("one")
	w.awaitPrintable("vm", v1.VirtualMachineStatusProvisioning)
	worker := w.awaitWorker("importer-one")
	w.ends(worker, 1, transfer.Result{Reason: transfer.ReasonTooLarge, Message: "the disk does not fit"})
	w.awaitPrintable("vm", v1.VirtualMachineStatusDataVolumeError)
	w.eventually("the VM to say what is wrong", func() (bool, string) {
		said := fmt.Sprint(w.vm("vm").Status.Conditions)
		return strings.Contains(said, "the disk does not fit"), said
	})
	if w.vmi("vm") != nil || len(w.provisioningPods()) != 0 {
		t.Error("a VMI or a provisioning pod was made for a disk that has failed")
	}

	// A deleted DataVolume must be made again.
	old := w.dv("one")
	w.do("deleting the DataVolume", w.client.Delete(w.ctx, old))
	w.sweepDV(old)
	w.do("deleting its claim", client.IgnoreNotFound(w.client.Delete(w.ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: w.namespace}})))
	w.eventually("another DataVolume", func() (bool, string) {
		var list cdiv1.DataVolumeList
		w.do("listing DataVolumes", w.client.List(w.ctx, &list, client.InNamespace(w.namespace)))
		return len(list.Items) == 1 && list.Items[0].UID != old.UID, fmt.Sprint(len(list.Items), " DataVolumes")
	})
}
