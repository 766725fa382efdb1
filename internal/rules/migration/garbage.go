package migration

import (
	"cmp"
	"slices"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/backoff"
)

const (
	// keptPerVMI is how many ended migrations of a VMI are kept, as KubeVirt does.
	keptPerVMI = 5
	// keptAfterVMI is how long those of a VMI that does not exist any more are kept.
	keptAfterVMI = 10 * time.Minute
)

// Garbage returns which of the migrations of VMIs of one name are to be deleted: of those
// that have ended all but the newest, and all when the VMI is gone. After asks for another
// look at a later time, zero for none.
func Garbage(migrations []*v1.VirtualMachineInstanceMigration, vmiExists bool, now time.Time) (garbage []*v1.VirtualMachineInstanceMigration, after time.Duration) {
	var ended []*v1.VirtualMachineInstanceMigration
	for _, m := range migrations {
		if m.IsFinal() && m.DeletionTimestamp == nil {
			ended = append(ended, m)
		}
	}
	slices.SortFunc(ended, newestFirst)
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

func newestFirst(a, b *v1.VirtualMachineInstanceMigration) int {
	return cmp.Or(endOf(b).Compare(endOf(a)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// endOf is when a migration ended, as far as it is known; else when it was made.
func endOf(m *v1.VirtualMachineInstanceMigration) time.Time {
	for _, t := range m.Status.PhaseTransitionTimestamps {
		if t.Phase == m.Status.Phase {
			return t.PhaseTransitionTimestamp.Time
		}
	}
	return m.CreationTimestamp.Time
}
