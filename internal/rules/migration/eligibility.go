package migration

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// immovable begins the reasons, as in messages of the condition LiveMigratable.
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

// InFlight reports whether the guest may be on either node of the VMI's last migration.
func InFlight(vmi *v1.VirtualMachineInstance) bool { return switchover.InFlight(&vmi.Status) }

// Movable returns why the guest of a VMI can't migrate, nil if it can. A migration in flight does not count.
func Movable(vmi *v1.VirtualMachineInstance) error {
	if err := outOfReach(vmi); err != nil {
		return err
	}
	return migrationObstacle(vmi)
}

// MayMove returns why the VMI's guest can't migrate, nil if it can or may be able to once it has started.
func MayMove(vmi *v1.VirtualMachineInstance) error {
	if Starts(vmi) {
		return migrationObstacle(vmi)
	}
	return Movable(vmi)
}

// Starts reports whether the guest has not run yet.
func Starts(vmi *v1.VirtualMachineInstance) bool {
	switch vmi.Status.Phase {
	case v1.VmPhaseUnset, v1.Pending, v1.Scheduling, v1.Scheduled:
		return vmi.DeletionTimestamp == nil
	}
	return false
}

// migrationObstacle returns why the guest must stay on its node, nil for no known reason.
func migrationObstacle(vmi *v1.VirtualMachineInstance) error {
	if c := notMigratable(vmi); c != nil {
		return errors.New(cmp.Or(strings.TrimPrefix(c.Message, immovable), c.Reason, "its condition LiveMigratable is False"))
	}
	return nil
}

// Reason returns " (REASON)" of the condition LiveMigratable if that keeps the guest on its node, else "". Clients search
// refusals for KubeVirt's reason.
func Reason(vmi *v1.VirtualMachineInstance) string {
	if c := notMigratable(vmi); c != nil && c.Reason != "" && (Starts(vmi) || outOfReach(vmi) == nil) {
		return " (" + c.Reason + ")"
	}
	return ""
}

// HeldByDisks reports whether only its disks keep the guest from migrating.
func HeldByDisks(vmi *v1.VirtualMachineInstance) bool {
	c := notMigratable(vmi)
	return c != nil && c.Reason == v1.VirtualMachineInstanceReasonDisksNotMigratable && outOfReach(vmi) == nil
}

func notMigratable(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstanceCondition {
	c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceIsMigratable)
	if c == nil || c.Status != corev1.ConditionFalse {
		return nil
	}
	return c
}

// outOfReach returns why there is no guest to migrate, nil if there is one.
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
