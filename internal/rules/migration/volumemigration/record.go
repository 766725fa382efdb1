package volumemigration

import (
	"fmt"
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// Recorded returns the moves in a VM's status.
func Recorded(status *v1.VirtualMachineStatus) []Move {
	if status.VolumeUpdateState == nil || status.VolumeUpdateState.VolumeMigrationState == nil {
		return nil
	}
	return Read(status.VolumeUpdateState.VolumeMigrationState.MigratedVolumes)
}

// Record writes the moves into a VM's status, unless it has them. It returns the new entries, which Describe completes.
func Record(status *v1.VirtualMachineStatus, moves []Move) []v1.StorageMigratedVolumeInfo {
	switch {
	case slices.Equal(moves, Recorded(status)) && (len(moves) > 0 || status.VolumeUpdateState == nil):
	case len(moves) == 0:
		status.VolumeUpdateState = nil
	default:
		list := Write(moves)
		status.VolumeUpdateState = &v1.VolumeUpdateState{VolumeMigrationState: &v1.VolumeMigrationState{MigratedVolumes: list}}
		return list
	}
	return nil
}

// Unfinished returns the undecided moves: the disk is on the old claim, as far as known, and the template names the
// copy or the VMI will make it. vmi is nil if it is gone.
func Unfinished(recorded []Move, vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec) []Move {
	return slices.DeleteFunc(slices.Clone(recorded), func(m Move) bool {
		named := claimOf(template, m.Volume) == m.To
		if vmi == nil {
			return !named
		}
		return claimOf(&vmi.Spec, m.Volume) != m.From || !named && !slices.Contains(Of(vmi), m)
	})
}

// With returns the wanted moves, then the other recorded ones.
func With(wanted, kept []Move) []Move {
	out := slices.Clone(wanted)
	for _, m := range kept {
		if !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

// Covers reports whether all moves are recorded.
func Covers(recorded, moves []Move) bool {
	return !slices.ContainsFunc(moves, func(m Move) bool { return !slices.Contains(recorded, m) })
}

// Recovery returns the advice for a VM whose template names copies that may be incomplete.
func Recovery(unfinished []Move) string {
	return fmt.Sprintf("the migration of volumes was not completed before the VM stopped (%s): what was copied may be incomplete; "+
		"have the template name the old claims again", Text(unfinished))
}
