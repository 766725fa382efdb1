package migration

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/machine"
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
		return errors.New("the VMI is being migrated already")
	}
	return nil
}

// InFlight reports whether a VMI is being migrated: its migration has neither failed nor
// completed, or its guest has arrived and the VMI does not say so yet.
func InFlight(vmi *v1.VirtualMachineInstance) bool {
	ms := vmi.Status.MigrationState
	return ms != nil && !ms.Failed && (!ms.Completed || vmi.Status.NodeName != ms.TargetNode)
}

// Movable returns why the guest of a VMI can't be brought to another node, nil if it can,
// whether or not it is on its way already.
func Movable(vmi *v1.VirtualMachineInstance) error {
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
	if c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceIsMigratable); c != nil && c.Status == corev1.ConditionFalse {
		return errors.New(cmp.Or(strings.TrimPrefix(c.Message, immovable), c.Reason, "its condition LiveMigratable is False"))
	}
	if plugged := hotplugged(vmi); len(plugged) > 0 {
		return fmt.Errorf("its hotplugged volumes (%s) can't be migrated yet", list(plugged))
	}
	return nil
}

// hotplugged are the volumes of a VMI that are in its guest, or on their way there, by a pod
// of their own.
func hotplugged(vmi *v1.VirtualMachineInstance) []string {
	var names []string
	for i := range vmi.Spec.Volumes {
		if v := &vmi.Spec.Volumes[i]; machine.Hotpluggable(v) {
			names = append(names, v.Name)
		}
	}
	for i := range vmi.Status.VolumeStatus {
		s := &vmi.Status.VolumeStatus[i]
		if s.HotplugVolume != nil && !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}

// list names the first few.
func list(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
