package migration

import (
	"cmp"
	"slices"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/object/backoff"
)

const (
	keptPerVMI   = 5                // ended migrations, as in KubeVirt
	keptAfterVMI = 10 * time.Minute // when the VMI is gone
)

// Garbage returns the migrations of one VMI's name to delete. after is the requeue delay, zero for none.
func Garbage(migrations []*v1.VirtualMachineInstanceMigration, vmiExists bool, now time.Time) (garbage []*v1.VirtualMachineInstanceMigration, after time.Duration) {
	var ended []*v1.VirtualMachineInstanceMigration
	for _, m := range migrations {
		if m.IsFinal() && m.DeletionTimestamp == nil {
			ended = append(ended, m)
		}
	}
	slices.SortFunc(ended, func(a, b *v1.VirtualMachineInstanceMigration) int { // newest first
		return cmp.Or(endOf(b).Compare(endOf(a)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for i, m := range ended {
		left := endOf(m).Add(keptAfterVMI).Sub(now)
		switch {
		case i >= keptPerVMI, !vmiExists && left <= 0:
			garbage = append(garbage, m)
		case !vmiExists:
			after = backoff.Sooner(after, left)
		}
	}
	return garbage, after
}

// endOf returns when a migration ended, or its creation time if unknown.
func endOf(m *v1.VirtualMachineInstanceMigration) time.Time {
	for _, t := range m.Status.PhaseTransitionTimestamps {
		if t.Phase == m.Status.Phase {
			return t.PhaseTransitionTimestamp.Time
		}
	}
	return m.CreationTimestamp.Time
}
