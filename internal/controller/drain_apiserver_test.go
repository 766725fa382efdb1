//go:build apiserver

package controller

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// letsDrainsMoveDisks makes the VM allow it, and plays a virt-handler that reports a local disk.
func (w *world) letsDrainsMoveDisks() {
	w.t.Helper()
	w.eventually("the VM to allow it", func() (bool, string) {
		vm := w.vm("vm")
		before := vm.DeepCopy()
		vm.Annotations = map[string]string{volumemigration.DrainAnnotation: volumemigration.DrainMigrate}
		vm.Spec.UpdateVolumesStrategy = new(v1.UpdateVolumesStrategyMigration)
		err := w.client.Patch(w.ctx, vm, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		return err == nil, fmt.Sprint(err)
	})
	w.eventually("the VMI's evictionStrategy", func() (bool, string) {
		from := w.vmi("vm")
		to := from.DeepCopy()
		to.Spec.EvictionStrategy = new(v1.EvictionStrategyLiveMigrate)
		to.Status.VolumeStatus = []v1.VolumeStatus{{Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
			ClaimName: "old", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		}}}
		err := w.client.Patch(w.ctx, to, client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{}))
		return err == nil, fmt.Sprint(err)
	})
	w.migratable(corev1.ConditionFalse)
}

// migratable plays a virt-handler that reports whether the VMI can be migrated with its disks.
func (w *world) migratable(status corev1.ConditionStatus) {
	w.t.Helper()
	w.eventually("the condition LiveMigratable", func() (bool, string) {
		from := w.vmi("vm")
		to := from.DeepCopy()
		condition.Drop(&to.Status.Conditions, v1.VirtualMachineInstanceIsMigratable)
		to.Status.Conditions = append(to.Status.Conditions, v1.VirtualMachineInstanceCondition{
			Type: v1.VirtualMachineInstanceIsMigratable, Status: status, Reason: v1.VirtualMachineInstanceReasonDisksNotMigratable, Message: "PVC old is not shared",
		})
		err := w.client.Patch(w.ctx, to, client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{}))
		return err == nil, fmt.Sprint(err)
	})
}

func (w *world) madeForDrains() []cdiv1.DataVolume {
	w.t.Helper()
	var list cdiv1.DataVolumeList
	w.do("listing the DataVolumes", w.client.List(w.ctx, &list, client.InNamespace(w.namespace), client.HasLabels{volumemigration.DrainLabel}))
	return list.Items
}

func (w *world) templateOf() string {
	w.t.Helper()
	for _, v := range w.vm("vm").Spec.Template.Spec.Volumes {
		switch {
		case v.Name == "data" && v.DataVolume != nil:
			return v.DataVolume.Name
		case v.Name == "data":
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

// TestADrainMovesADiskAndIsTakenBack checks that a drain's objects and changes exist once, also with another leader,
// and are reverted when the node is schedulable again.
func TestADrainMovesADiskAndIsTakenBack(t *testing.T) {
	w := newWorld(t)
	w.runOnClaim()
	w.letsDrainsMoveDisks()
	if made := w.madeForDrains(); len(made) > 0 || w.templateOf() != "old" {
		t.Fatalf("without a drain there are %+v, and the template names %s", made, w.templateOf())
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: testNode}}
	cordon := func(is string) {
		w.do("cordoning", w.client.Patch(w.ctx, node, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":`+is+`}}`))))
	}
	cordon("true")
	t.Cleanup(func() {
		_ = w.client.Patch(w.cleanup(), node, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":null}}`)))
	})
	w.evicts("vm", true)
	move := volumemigration.MovesOffNode(w.vmi("vm"))[0]
	w.awaitMoves(move)
	w.restartLoops()
	w.migratable(corev1.ConditionTrue)
	m := w.awaitEvacuation("vm")
	made := w.madeForDrains()
	if len(made) != 1 || made[0].Name != move.To || w.templateOf() != move.To || w.claimOf() != "old" {
		t.Fatalf("the template names %s, the VMI %s, and there are %+v", w.templateOf(), w.claimOf(), made)
	}
	like := w.awaitClaim(move.To).Spec
	if size := like.Resources.Requests[corev1.ResourceStorage]; size.String() != "1Gi" || *like.StorageClassName == "" {
		t.Errorf("the claim is %+v", like)
	}
	t.Cleanup(func() { w.sweepDV(&made[0]) })

	cordon("null")
	w.awaitMigrationGone(m.Name)
	w.eventually("everything as it was", func() (bool, string) {
		left := w.madeForDrains()
		s := w.vm("vm").Status
		return w.templateOf() == "old" && len(left) == 0 && s.VolumeUpdateState == nil, fmt.Sprintf("the template names %s, there are %+v; %+v", w.templateOf(), left, s)
	})
	w.awaitMoves()
}

// TestADrainSaysThatClaimsCannotBeMade refuses the claims by a quota. The drain must report it, and go on when the
// claims are allowed.
func TestADrainSaysThatClaimsCannotBeMade(t *testing.T) {
	w := newWorld(t)
	w.runOnClaim()
	w.letsDrainsMoveDisks()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "no-datavolumes", Namespace: w.namespace},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/datavolumes.cdi.kubevirt.io": resource.MustParse("0")}},
	}
	w.do("creating the quota", w.client.Create(w.ctx, quota))
	w.eventually("the quota to be in force", func() (bool, string) {
		probe := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: w.namespace}}
		err := w.client.Create(w.ctx, probe, client.DryRunAll)
		return apierrors.IsForbidden(err), fmt.Sprint(err)
	})
	w.evicts("vm", false)
	w.eventually("the VM to say it", func() (bool, string) {
		c := condition.Find(w.vm("vm").Status.Conditions, v1.VirtualMachineFailure)
		return c != nil && strings.Contains(c.Message, "no-datavolumes") && w.templateOf() == "old", fmt.Sprintf("%+v", c)
	})
	w.do("deleting the quota", w.client.Delete(w.ctx, quota))
	w.awaitMoves(volumemigration.MovesOffNode(w.vmi("vm"))[0])
	w.eventually("the VM not to say it any more", func() (bool, string) {
		c := condition.Find(w.vm("vm").Status.Conditions, v1.VirtualMachineFailure)
		return c == nil, fmt.Sprintf("%+v", c)
	})
	for _, dv := range w.madeForDrains() {
		t.Cleanup(func() { w.sweepDV(&dv) })
	}
}
