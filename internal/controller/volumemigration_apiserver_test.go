//go:build apiserver

package controller

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

func (w *world) claimFor(class, name string) {
	w.t.Helper()
	w.do("creating the claim", w.client.Create(w.ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}))
	w.bindClaim(name)
}

// The change starts a storage migration.
func (w *world) nameClaim(name string) {
	w.t.Helper()
	w.eventually("the template to be changed", func() (bool, string) {
		vm := w.vm("vm")
		before := vm.DeepCopy()
		vm.Spec.UpdateVolumesStrategy = new(v1.UpdateVolumesStrategyMigration)
		for i := range vm.Spec.Template.Spec.Volumes {
			if v := &vm.Spec.Template.Spec.Volumes[i]; v.Name == "data" {
				v.PersistentVolumeClaim.ClaimName = name
			}
		}
		err := w.client.Patch(w.ctx, vm, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		return err == nil, fmt.Sprint(err)
	})
}

func (w *world) claimOf() string {
	for _, v := range w.vmi("vm").Spec.Volumes {
		if v.Name == "data" {
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

func (w *world) awaitMoves(want ...volumemigration.Move) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("the moves %v", want), func() (bool, string) {
		now := w.vmi("vm")
		changes := condition.IsTrue(now.Status.Conditions, v1.VirtualMachineInstanceVolumesChange)
		return slices.Equal(volumemigration.Of(now), want) && changes == (len(want) > 0), fmt.Sprintf("%+v", now.Status)
	})
}

func (w *world) runOnClaim() (source *corev1.Pod) {
	w.t.Helper()
	class := w.storageClass(storagev1.VolumeBindingImmediate)
	w.claimFor(class, "old")
	w.claimFor(class, "new")
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "vm", Namespace: w.namespace},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: new(v1.RunStrategyAlways), Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: testSpec()},
		},
	}
	spec := &vm.Spec.Template.Spec
	spec.Domain.Firmware = &v1.Firmware{UUID: "5d307ca9-b3ef-428c-8861-06e72d69f223"}
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "old"}}}})
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}})
	w.do("creating the VM", w.client.Create(w.ctx, vm))
	source = w.run("vm")
	w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)
	return source
}

// TestADiskGoesToAnotherClaim: at every step the VMI must name the claim to which its guest writes.
func TestADiskGoesToAnotherClaim(t *testing.T) {
	w := newWorld(t)
	w.runOnClaim()
	move := volumemigration.Move{Volume: "data", From: "old", To: "new"}
	w.nameClaim("new")
	w.awaitMoves(move)
	if got := volumemigration.Recorded(&w.vm("vm").Status); !slices.Equal(got, []volumemigration.Move{move}) {
		t.Fatalf("the VM's record is %v", got)
	}
	m := w.migrate("move", "vm")
	target := w.bringTo(m, v1.MigrationRunning, otherNode)
	if why := volumemigration.WrongClaims(target, w.vmi("vm")); why != "" || w.claimOf() != "old" {
		t.Fatalf("the VMI names %s; %s", w.claimOf(), why)
	}
	w.targetSays(m, vmistatus.TargetMigration{Runs: true})
	w.awaitMigration(m.Name, v1.MigrationSucceeded)
	if got := w.claimOf(); got != "new" {
		t.Errorf("the guest runs at the target, and the VMI names %s", got)
	}
	w.awaitMoves()
	w.eventually("no trace on the VM", func() (bool, string) {
		s := w.vm("vm").Status
		return s.VolumeUpdateState == nil && condition.Find(s.Conditions, v1.VirtualMachineRestartRequired) == nil, fmt.Sprintf("%+v", s)
	})
}

// TestADiskThatIsNotToGoToAnotherClaimAnyMore reverts the template. The migration must be canceled, and the list of
// volumes must stay until it has ended.
func TestADiskThatIsNotToGoToAnotherClaimAnyMore(t *testing.T) {
	w := newWorld(t)
	source := w.runOnClaim()
	w.nameClaim("new")
	w.awaitMoves(volumemigration.Move{Volume: "data", From: "old", To: "new"})
	m := w.migrate("move", "vm")
	target := w.bringTo(m, v1.MigrationRunning, otherNode)
	w.nameClaim("old")
	w.awaitAbort("vm")
	if got := volumemigration.Of(w.vmi("vm")); len(got) != 1 {
		t.Errorf("the migration is being stopped, and its volumes are %v", got)
	}
	w.sourceSays(m, vmistatus.SourceMigration{Failure: "it was stopped", Abort: v1.MigrationAbortSucceeded})
	w.awaitMigration(m.Name, v1.MigrationFailed)
	w.awaitStaying("vm", source, target)
	w.awaitMoves()
	w.eventually("no trace on the VM", func() (bool, string) {
		s := w.vm("vm").Status
		return s.VolumeUpdateState == nil && w.claimOf() == "old", fmt.Sprintf("%+v", s)
	})
}

// TestAVMIsNotStartedWithAnUnfinishedCopy deletes the VMI while its disk is copied.
func TestAVMIsNotStartedWithAnUnfinishedCopy(t *testing.T) {
	w := newWorld(t)
	source := w.runOnClaim()
	w.nameClaim("new")
	w.awaitMoves(volumemigration.Move{Volume: "data", From: "old", To: "new"})
	before := w.vmi("vm")
	w.end("vm", source, v1.Failed)
	w.eventually("ManualRecoveryRequired", func() (bool, string) {
		s := w.vm("vm").Status
		return condition.IsTrue(s.Conditions, v1.VirtualMachineManualRecoveryRequired), fmt.Sprintf("%+v", s)
	})
	w.noSuccessor(before)
	w.nameClaim("old")
	w.successor(before)
	if got := w.claimOf(); got != "old" {
		t.Errorf("it is started on %s", got)
	}
}
