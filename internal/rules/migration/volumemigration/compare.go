package volumemigration

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// Compare returns the moves from a running VMI's claims to a template's, or the reasons why volumes can't be moved: all
// move or none. It skips volumes that are hotpluggable in only one of the two.
func Compare(vmi *v1.VirtualMachineInstance, wanted *v1.VirtualMachineInstanceSpec) (moves []Move, refusals []string) {
	running := &vmi.Spec
	for i := range wanted.Volumes {
		to := &wanted.Volumes[i]
		from := volumeclaim.Named(running.Volumes, to.Name)
		if from == nil || machine.Hotpluggable(from) != machine.Hotpluggable(to) {
			continue
		}
		move := Move{Volume: to.Name, From: volumeclaim.Disk(&from.VolumeSource), To: volumeclaim.Disk(&to.VolumeSource)}
		if move.From == move.To {
			continue
		}
		why := refusal(running, wanted, move)
		if why == "" && machine.Hotpluggable(from) {
			why = unready(vmi, move)
		}
		if why != "" {
			refusals = append(refusals, fmt.Sprintf("volume %s can't be migrated: %s", to.Name, why))
			continue
		}
		moves = append(moves, move)
	}
	if len(refusals) > 0 {
		return nil, refusals
	}
	return moves, nil
}

func refusal(running, wanted *v1.VirtualMachineInstanceSpec, m Move) string {
	from, to := volumeclaim.Named(running.Volumes, m.Volume), volumeclaim.Named(wanted.Volumes, m.Volume)
	if why := unfitSource(from, to); why != "" {
		return why
	}
	if machine.IsShare(wanted, m.Volume) {
		return "the guest is to share it as a folder (spec.domain.devices.filesystems)"
	}
	for i := range running.Volumes {
		if v := &running.Volumes[i]; volumeclaim.Name(&v.VolumeSource) == m.To {
			return fmt.Sprintf("volume %s is on the claim %s", v.Name, m.To)
		}
	}
	for i := range wanted.Volumes {
		if v := &wanted.Volumes[i]; v.Name != m.Volume && volumeclaim.Name(&v.VolumeSource) == m.To {
			return fmt.Sprintf("volume %s is to be on the claim %s as well", v.Name, m.To)
		}
	}
	return unfitDisk(running, m.Volume)
}

// Copyable returns why a volume's disk can't be copied while the guest runs, "" if it can.
func Copyable(spec *v1.VirtualMachineInstanceSpec, v *v1.Volume) string {
	if why := unfitSource(v); why != "" {
		return why
	}
	return unfitDisk(spec, v.Name)
}

func unfitSource(volumes ...*v1.Volume) string {
	for _, v := range volumes {
		if volumeclaim.Disk(&v.VolumeSource) == "" {
			return "only a persistentVolumeClaim or a dataVolume can be migrated, and to one of these"
		}
	}
	for _, v := range volumes {
		if volumeclaim.Written(&v.VolumeSource) == "" {
			return "its claim is only read"
		}
	}
	return ""
}

func unfitDisk(spec *v1.VirtualMachineInstanceSpec, volume string) string {
	for i := range spec.Domain.Devices.Disks {
		d := &spec.Domain.Devices.Disks[i]
		switch {
		case d.Name != volume:
			continue
		case d.CDRom != nil:
			return "it is in a cdrom"
		case d.LUN != nil:
			return "it is a lun, which the guest gives commands to that are not copied"
		case d.Shareable != nil && *d.Shareable:
			return "its disk is shareable, and other guests may write to it"
		case d.Disk != nil && d.Disk.ReadOnly:
			return "its disk is read-only"
		}
		return ""
	}
	return "it has no disk"
}

// WithMovedClaims returns started, the spec from which the VMI was started, with the claims of wanted that need no
// restart: the VMI has them, or is being moved to them.
func WithMovedClaims(started, running, wanted *v1.VirtualMachineInstanceSpec, moves []Move) *v1.VirtualMachineInstanceSpec {
	out := *started
	out.Volumes = nil
	for i := range started.Volumes {
		v := started.Volumes[i]
		moved := slices.ContainsFunc(moves, func(m Move) bool { return m.Volume == v.Name })
		if to := volumeclaim.Named(wanted.Volumes, v.Name); to != nil && (settled(running, to) || moved) {
			v.VolumeSource = to.VolumeSource
		}
		out.Volumes = append(out.Volumes, v)
	}
	return &out
}

func settled(running *v1.VirtualMachineInstanceSpec, to *v1.Volume) bool {
	claim := volumeclaim.Disk(&to.VolumeSource)
	if claim == "" || claimOf(running, to.Name) != claim {
		return false
	}
	from := volumeclaim.Named(running.Volumes, to.Name)
	written := volumeclaim.Written(&from.VolumeSource) != "" && volumeclaim.Written(&to.VolumeSource) != ""
	return written && machine.Hotpluggable(from) == machine.Hotpluggable(to)
}

// Rename gives the VMI's volumes the template's source if both name the same claim, as claim or DataVolume, and reports a
// change.
func Rename(running, wanted *v1.VirtualMachineInstanceSpec) bool {
	changed := false
	for i := range wanted.Volumes {
		to := &wanted.Volumes[i]
		if from := volumeclaim.Named(running.Volumes, to.Name); from != nil && settled(running, to) && !equality.Semantic.DeepEqual(from.VolumeSource, to.VolumeSource) {
			from.VolumeSource, changed = *to.VolumeSource.DeepCopy(), true
		}
	}
	return changed
}
