//go:build apiserver

package controller

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/snapshot/restore"
	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

// createShapedVM makes a claim, and a stopped VM on it whose guest has the three CPUs of the type "three".
func (w *world) createShapedVM(name string) {
	w.t.Helper()
	w.createBoundClaim("one")
	w.do("making the type", w.client.Create(w.ctx, &instancetypev1.VirtualMachineInstancetype{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "three"},
		Spec: instancetypev1.VirtualMachineInstancetypeSpec{
			CPU:    instancetypev1.CPUInstancetype{Guest: 3},
			Memory: instancetypev1.MemoryInstancetype{Guest: resource.MustParse("128Mi")},
		},
	}))
	spec := testSpec()
	spec.Domain.Memory = nil
	spec.Volumes = []v1.Volume{{Name: "one", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "one"}}}}}
	w.do("creating the VM", w.client.Create(w.ctx, &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: new(v1.RunStrategyHalted), Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: spec},
			Instancetype: &v1.InstancetypeMatcher{Name: "three", Kind: instancetype.KindType},
		},
	}))
}

func (w *world) owners() []string {
	w.t.Helper()
	var list appsv1.ControllerRevisionList
	w.do("listing revisions", w.client.List(w.ctx, &list, client.InNamespace(w.namespace), client.HasLabels{"instancetype.kubevirt.io/object-uid"}))
	var kinds []string
	for _, revision := range list.Items {
		for _, owner := range revision.OwnerReferences {
			kinds = append(kinds, owner.Kind+" "+owner.Name)
		}
	}
	return kinds
}

// The VM and its type are deleted. A restored VM must have the same shape, and keep it without the snapshot.
func TestASnapshotKeepsTheShapeOfItsVM(t *testing.T) {
	w := newWorld(t)
	w.createShapedVM("vm")
	w.snapshot("snap", "vm")
	w.awaitSnapshot("snap", snapshotv1.Succeeded)
	content := w.contents()[0]
	if got, want := fmt.Sprint(w.owners()), "[VirtualMachine vm VirtualMachineSnapshotContent "+content.Name+"]"; got != want {
		t.Errorf("the revision is owned by %s, want %s", got, want)
	}

	w.remove(&v1.VirtualMachine{}, "vm")
	w.remove(&instancetypev1.VirtualMachineInstancetype{}, "three")
	w.eventually("the VM's part of the revision to go", func() (bool, string) {
		return len(w.owners()) == 1, fmt.Sprint(w.owners())
	})
	w.restore("r", "snap", "copy")
	w.awaitRestore("r", "complete", restore.Complete)
	w.eventually("the copy to hold the revision", func() (bool, string) {
		return len(w.owners()) == 2, fmt.Sprint(w.owners())
	})
	w.remove(&snapshotv1.VirtualMachineSnapshot{}, "snap")
	w.eventually("the snapshot's part of the revision to go", func() (bool, string) {
		got := fmt.Sprint(w.owners())
		return got == "[VirtualMachine copy]", got
	})

	w.edit("copy", func(vm *v1.VirtualMachine) { vm.Spec.RunStrategy = new(v1.RunStrategyAlways) })
	w.eventually("a VMI of the copy", func() (bool, string) { return w.vmi("copy") != nil, "there is none" })
	if cpu := w.vmi("copy").Spec.Domain.CPU; cpu == nil || cpu.Sockets != 3 {
		t.Errorf("the copy's guest has the CPUs %+v, want three sockets", cpu)
	}
}

// The VM's revision was deleted: no snapshot can have the VM's shape.
func TestAShapeThatIsLostIsNotSnapshotted(t *testing.T) {
	w := newWorld(t)
	w.createShapedVM("vm")
	w.awaitPrintable("vm", v1.VirtualMachineStatusStopped)
	w.stop()
	var revisions appsv1.ControllerRevision
	w.do("deleting the revision", w.client.DeleteAllOf(w.ctx, &revisions, client.InNamespace(w.namespace)))
	w.snapshot("snap", "vm")
	w.startLoops()
	s := w.awaitSnapshot("snap", snapshotv1.Failed)
	want := fmt.Sprintf("the ControllerRevision %s was deleted, by which the VM vm goes", w.vm("vm").Status.InstancetypeRef.ControllerRevisionRef.Name)
	if got := *s.Status.Error.Message; got != want {
		t.Errorf("the snapshot says %q, want %q", got, want)
	}
}

// nobodysDriver is a storage driver that does not exist (any more).
const nobodysDriver = "nobody.example.com"

// claimOfNobody makes a claim whose driver does not answer, and a snapshot class of that driver.
func (w *world) claimOfNobody(name string) {
	w.t.Helper()
	w.localClaim(name, func(volume *corev1.PersistentVolume) {
		volume.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: nobodysDriver, VolumeHandle: w.namespace}}
	})
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": map[string]any{"name": w.namespace},
		"driver": nobodysDriver, "deletionPolicy": "Delete",
	}}
	w.do("making a class", w.client.Create(w.ctx, class))
	w.t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), class) })
}

// driverIsGivenUp removes the finalizers that wait for the driver, as an administrator does without the driver.
func (w *world) driverIsGivenUp() error {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("snapshot.storage.k8s.io/v1")
	list.SetKind("VolumeSnapshotContentList")
	if err := w.client.List(w.ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		item := &list.Items[i]
		if driver, _, _ := unstructured.NestedString(item.Object, "spec", "driver"); driver != nobodysDriver || len(item.GetFinalizers()) == 0 {
			continue
		}
		from := item.DeepCopy()
		item.SetFinalizers(nil)
		if err := w.client.Patch(w.ctx, item, client.MergeFrom(from)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// One disk is snapshotted, the driver of the other does not answer: no snapshot may be kept, and the VM must run on.
func TestStorageThatFailsHalfWay(t *testing.T) {
	w := newWorld(t)
	w.createBoundClaim("one")
	w.claimOfNobody("nobodys")
	w.createVMOn("vm", "one", "nobodys")
	w.snapshot("snap", "vm", func(s *snapshotv1.VirtualMachineSnapshot) {
		s.Spec.FailureDeadline = &metav1.Duration{Duration: time.Hour}
	})
	w.eventually("both cuts to be asked for", func() (bool, string) { n := w.volumeSnapshots(); return n == 2, fmt.Sprint(n) })
	w.goesBy(2 * time.Hour)
	s := w.awaitSnapshot("snap", snapshotv1.Failed)
	if !condition.IsTrue(s.Status.Conditions, snapshotv1.ConditionFailure) || *s.Status.ReadyToUse {
		t.Errorf("the snapshot says %+v", s.Status)
	}
	w.eventually("nothing to be left", func() (bool, string) {
		w.do("giving up the driver", w.driverIsGivenUp())
		contents, cuts := len(w.contents()), w.volumeSnapshots()
		return contents+cuts == 0, fmt.Sprintf("%d contents and %d VolumeSnapshots are there", contents, cuts)
	})
	if by := w.vm("vm").Status.SnapshotInProgress; by != nil {
		t.Errorf("the VM is still locked by %s", *by)
	}
}
