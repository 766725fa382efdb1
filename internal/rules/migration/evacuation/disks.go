package evacuation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/object/objectevent"
)

// Marked reports whether a VMI is marked for its current node.
func Marked(vmi *v1.VirtualMachineInstance) bool {
	node := vmi.Status.EvacuationNodeName
	return node != "" && node == vmi.Status.NodeName
}

// Only the VMI's own strategy counts: admission copied the cluster's at creation.
func migrates(vmi *v1.VirtualMachineInstance) bool {
	s := Strategy(vmi, v1.EvictionStrategyNone)
	return s == v1.EvictionStrategyLiveMigrate || s == v1.EvictionStrategyLiveMigrateIfPossible
}

// DiskMoves returns the moves of node-local disks that let a guest leave its node, as far as its VM allows them
// (decision 342). There are none if it has no such disks, one can't be moved, something else keeps the guest there,
// or a user has requested other claims.
func DiskMoves(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) []volumemigration.Move {
	switch {
	case vm == nil || vm.DeletionTimestamp != nil || vm.Spec.Template == nil || !metav1.IsControlledBy(vmi, vm):
		return nil
	case !volumemigration.DrainAllowed(vm), !migrates(vmi), migration.Movable(vmi) != nil && !migration.HeldByDisks(vmi):
		return nil
	}
	list, refusals := volumemigration.Local(vmi)
	if len(refusals) > 0 || !volumemigration.Open(&vm.Spec.Template.Spec, list) {
		return nil
	}
	return list
}

func copying(vm *v1.VirtualMachine) string {
	if c := condition.Find(vm.Status.Conditions, v1.VirtualMachineFailure); c != nil && c.Status == corev1.ConditionTrue {
		return objectevent.Fit(fmt.Sprintf("it is to be migrated to another node together with its disks, whose claims can't be made: %s", c.Message))
	}
	return "it is being migrated to another node together with its disks"
}
