package migration

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestWhatCanMigrate(t *testing.T) {
	type vmi = v1.VirtualMachineInstance
	in := func(phase v1.VirtualMachineInstancePhase) func(*vmi) {
		return func(v *vmi) { v.Status.Phase = phase }
	}
	says := func(kind v1.VirtualMachineInstanceConditionType, status corev1.ConditionStatus, reason, message string) func(*vmi) {
		return func(v *vmi) {
			v.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: kind, Status: status, Reason: reason, Message: message}}
		}
	}
	moving := func(edits ...func(*state)) func(*vmi) {
		return func(v *vmi) {
			v.Status.MigrationState = &state{TargetNode: "node2"}
			for _, e := range edits {
				e(v.Status.MigrationState)
			}
		}
	}
	const migrating = "in-flight migration detected: the VMI is being migrated already"
	for name, c := range map[string]struct {
		edit func(*vmi)
		want string
	}{
		"one that runs":          {func(*vmi) {}, ""},
		"one that was just made": {in(""), "the VMI is not running: its phase is Pending"},
		"one that starts":        {in(v1.Scheduled), "the VMI is not running: its phase is Scheduled"},
		"one that was shut down": {in(v1.Succeeded), "the VMI has ended: its phase is Succeeded"},
		"one that has failed":    {in(v1.Failed), "the VMI has ended: its phase is Failed"},
		"one that goes":          {func(v *vmi) { v.DeletionTimestamp = observed(cancel).Migration.DeletionTimestamp }, "the VMI is being deleted"},
		"one whose pod goes":     {says(v1.VirtualMachineInstanceReady, "False", v1.PodTerminatingReason, ""), "the launcher pod of the VMI is being deleted or is gone, and the guest ends with it"},
		"one whose node is lost": {says(v1.VirtualMachineInstanceReady, "False", "NodeLost", ""), "node node1, which the guest is on, does not answer"},
		"one that can":           {says(v1.VirtualMachineInstanceIsMigratable, "True", "", ""), ""},
		"one that can't":         {says(v1.VirtualMachineInstanceIsMigratable, "False", "Disks", "cannot migrate VMI: PVC a is not shared"), "PVC a is not shared"},
		"one that says little":   {says(v1.VirtualMachineInstanceIsMigratable, "False", "Disks", ""), "Disks"},
		"one that says nothing":  {says(v1.VirtualMachineInstanceIsMigratable, "False", "", ""), "its condition LiveMigratable is False"},
		"a disk of its own": {func(v *vmi) {
			v.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{}}}}
		}, ""},
		"one that migrates":               {moving(), migrating},
		"one whose migration failed":      {moving(failed), ""},
		"one that has arrived":            {func(v *vmi) { moving(completed)(v); v.Status.NodeName = "node2" }, ""},
		"one that has arrived just now":   {moving(completed), migrating},
		"one that migrates and was ended": {func(v *vmi) { moving()(v); in(v1.Failed)(v) }, "the VMI has ended: its phase is Failed"},
	} {
		v := observed().VMI
		c.edit(v)
		got := ""
		if err := CanMigrate(v); err != nil {
			got = fmt.Sprint(err)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestWhatOnlyItsDisksKeep: a guest with another obstacle as well must not leave with its disks.
func TestWhatOnlyItsDisksKeep(t *testing.T) {
	held := func(status corev1.ConditionStatus, reason string) []v1.VirtualMachineInstanceCondition {
		return []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceIsMigratable, Status: status, Reason: reason}}
	}
	for name, c := range map[string]struct {
		phase      v1.VirtualMachineInstancePhase
		conditions []v1.VirtualMachineInstanceCondition
		want       bool
	}{
		"its disks":                   {v1.Running, held("False", "DisksNotLiveMigratable"), true},
		"a network":                   {v1.Running, held("False", "InterfaceNotLiveMigratable"), false},
		"nothing":                     {v1.Running, held("True", "DisksNotLiveMigratable"), false},
		"nothing that it says":        {v1.Running, nil, false},
		"its disks, before it runs":   {v1.Scheduled, held("False", "DisksNotLiveMigratable"), false},
		"its disks, and it has ended": {v1.Failed, held("False", "DisksNotLiveMigratable"), false},
	} {
		v := observed().VMI
		v.Status.Phase, v.Status.Conditions = c.phase, c.conditions
		if HeldByDisks(v) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}
