package volumemigration

import (
	"fmt"
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// Recorded returns the moves that a VM has a record of.
func Recorded(status *v1.VirtualMachineStatus) []Move {
	if status.VolumeUpdateState == nil || status.VolumeUpdateState.VolumeMigrationState == nil {
		return nil
	}
	return Read(status.VolumeUpdateState.VolumeMigrationState.MigratedVolumes)
}

// Record writes the record of moves into a VM's status. What is recorded already stays as it is.
func Record(status *v1.VirtualMachineStatus, moves []Move) {
	switch {
	case slices.Equal(moves, Recorded(status)) && (len(moves) > 0 || status.VolumeUpdateState == nil):
	case len(moves) == 0:
		status.VolumeUpdateState = nil
	default:
		status.VolumeUpdateState = &v1.VolumeUpdateState{VolumeMigrationState: &v1.VolumeMigrationState{MigratedVolumes: Write(moves)}}
	}
}

// Kept returns those of the recorded moves that nothing has decided yet: their disk is, as far as is
// known, where it was, and the template names the copy or the VMI is about to make it. vmi is the VM's, or
// nil when that is gone.
func Kept(recorded []Move, vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec) []Move {
	return slices.DeleteFunc(slices.Clone(recorded), func(m Move) bool {
		named := claimOf(template, m.Volume) == m.To
		if vmi == nil {
			return !named
		}
		return claimOf(&vmi.Spec, m.Volume) != m.From || !named && !slices.Contains(Of(vmi), m)
	})
}

// With returns the recorded moves together with those that are wanted, which come first.
func With(wanted, kept []Move) []Move {
	out := slices.Clone(wanted)
	for _, m := range kept {
		if !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

// Covers reports whether all of the moves are recorded.
func Covers(recorded, moves []Move) bool {
	return !slices.ContainsFunc(moves, func(m Move) bool { return !slices.Contains(recorded, m) })
}

// Recovery says what is to be done about a VM whose template names copies that are not complete, as far as
// is known.
func Recovery(unfinished []Move) string {
	return fmt.Sprintf("the migration of volumes was not completed before the VM stopped (%s): what was copied may be incomplete; "+
		"have the template name the old claims again", Text(unfinished))
}
