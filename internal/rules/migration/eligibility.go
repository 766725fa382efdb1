package migration

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// immovable begins what is said of a VMI that can't be migrated: by the condition
// LiveMigratable, too, of which whoever passes it on says it himself.
const immovable = "cannot migrate VMI: "

// CanMigrate returns why a migration of a VMI can't begin now, nil if it can.
func CanMigrate(vmi *v1.VirtualMachineInstance) error {
	if err := Movable(vmi); err != nil {
		return err
	}
	if InFlight(vmi) {
		return errors.New("in-flight migration detected: the VMI is being migrated already")
	}
	return nil
}

// InFlight reports whether a VMI is being migrated: its migration has neither failed nor
// completed, or its guest has arrived and the VMI does not say so yet.
func InFlight(vmi *v1.VirtualMachineInstance) bool {
	return hotplug.MoveOf(vmi).UnderWay
}

// Movable returns why the guest of a VMI can't be brought to another node, nil if it can,
// whether or not it is on its way already.
func Movable(vmi *v1.VirtualMachineInstance) error {
	if err := outOfReach(vmi); err != nil {
		return err
	}
	return stays(vmi)
}

// MayMove returns why a VMI's guest can't be brought to another node, nil if it can, or may be able to once it has
// started.
func MayMove(vmi *v1.VirtualMachineInstance) error {
	if Starts(vmi) {
		return stays(vmi)
	}
	return Movable(vmi)
}

// Starts reports whether a VMI's guest has not run yet.
func Starts(vmi *v1.VirtualMachineInstance) bool {
	switch vmi.Status.Phase {
	case v1.VmPhaseUnset, v1.Pending, v1.Scheduling, v1.Scheduled:
		return vmi.DeletionTimestamp == nil
	}
	return false
}

// stays returns what of the VMI keeps its guest on its node, nil if nothing is known to.
func stays(vmi *v1.VirtualMachineInstance) error {
	if c := held(vmi); c != nil {
		return errors.New(cmp.Or(strings.TrimPrefix(c.Message, immovable), c.Reason, "its condition LiveMigratable is False"))
	}
	return nil
}

// Reason is the reason of the condition LiveMigratable, in parentheses and after a space, of a VMI whose guest that
// condition keeps on its node: clients look for KubeVirt's word in a refusal. It is "" for any other VMI.
func Reason(vmi *v1.VirtualMachineInstance) string {
	if c := held(vmi); c != nil && c.Reason != "" && (Starts(vmi) || outOfReach(vmi) == nil) {
		return " (" + c.Reason + ")"
	}
	return ""
}

// HeldByDisks reports whether nothing but its disks keeps a guest from being brought to another node.
func HeldByDisks(vmi *v1.VirtualMachineInstance) bool {
	c := held(vmi)
	return c != nil && c.Reason == v1.VirtualMachineInstanceReasonDisksNotMigratable && outOfReach(vmi) == nil
}

// held returns the condition that says what of a VMI keeps its guest on its node, nil if it says that nothing does.
func held(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstanceCondition {
	c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceIsMigratable)
	if c == nil || c.Status != corev1.ConditionFalse {
		return nil
	}
	return c
}

// outOfReach returns why there is no guest that a migration could begin with, nil if there is one.
func outOfReach(vmi *v1.VirtualMachineInstance) error {
	switch {
	case vmi.IsFinal():
		return fmt.Errorf("the VMI has ended: its phase is %s", vmi.Status.Phase)
	case vmi.DeletionTimestamp != nil:
		return errors.New("the VMI is being deleted")
	case vmi.Status.Phase != v1.Running:
		return fmt.Errorf("the VMI is not running: its phase is %s", cmp.Or(vmi.Status.Phase, v1.Pending))
	case vmistatus.Interrupted(vmi):
		return errors.New("the launcher pod of the VMI is being deleted or is gone, and the guest ends with it")
	case vmistatus.Unanswered(vmi):
		return fmt.Errorf("node %s, which the guest is on, does not answer", vmi.Status.NodeName)
	}
	return nil
}
