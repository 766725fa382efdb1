package evacuation

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
)

// Marked reports whether a VMI is marked for its current node.
func Marked(vmi *v1.VirtualMachineInstance) bool {
	node := vmi.Status.EvacuationNodeName
	return node != "" && node == vmi.Status.NodeName
}

// DiskMoves returns the moves of node-local disks that let a guest leave its node, if its VM allows them (decision 342).
// It returns none if one can't be moved, something else keeps the guest there, or a user has requested other claims.
func DiskMoves(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) []volumemigration.Move {
	if vm == nil || vm.DeletionTimestamp != nil || vm.Spec.Template == nil || !metav1.IsControlledBy(vmi, vm) {
		return nil
	}
	strategy := Strategy(vmi, v1.EvictionStrategyNone) // Admission copied the cluster's at creation.
	migrates := strategy == v1.EvictionStrategyLiveMigrate || strategy == v1.EvictionStrategyLiveMigrateIfPossible
	if !volumemigration.DrainAllowed(vm) || !migrates || migration.Movable(vmi) != nil && !migration.HeldByDisks(vmi) {
		return nil
	}
	list, refusals := volumemigration.Local(vmi)
	if len(refusals) > 0 || !volumemigration.OnEitherClaim(&vm.Spec.Template.Spec, list) {
		return nil
	}
	return list
}
