package volumemigration

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplugspec"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/volumeclaim"
)

// A hotpluggable volume whose claim changes is unplugged, and the other claim is plugged: the guest has another disk then.
// Where changes are carried out by migrations the disk is copied instead, and nothing is exchanged meanwhile (decision 343).

// Exchange is a hotpluggable volume of a template that comes to another claim and can't be copied there.
type Exchange struct {
	// Index is the volume's in the template, Why what keeps it from being copied.
	Index int
	Why   string
}

// Exchanges returns the volumes by which another disk would be plugged into a guest in the place of one that was to be copied.
func Exchanges(before, after *v1.VirtualMachineInstanceSpec) []Exchange {
	var list []Exchange
	for i := range after.Volumes {
		to := &after.Volumes[i]
		from := find(before, to.Name)
		if from == nil || !machine.Hotpluggable(from) && !machine.Hotpluggable(to) {
			continue
		}
		if was := volumeclaim.Disk(&from.VolumeSource); was == "" || was == volumeclaim.Disk(&to.VolumeSource) {
			continue
		}
		why := unfitDisk(after, to.Name)
		if machine.Hotpluggable(from) != machine.Hotpluggable(to) {
			why = "it can't become hotpluggable, or stop being so, with the same change"
		}
		if why != "" {
			list = append(list, Exchange{Index: i, Why: why})
		}
	}
	return list
}

// unready is why the disk of a hotpluggable volume can't be copied now, "" if it can.
func unready(vmi *v1.VirtualMachineInstance, m Move) string {
	drift := hotplugspec.ReadDrift(vmi.Annotations)
	if drift.Added(m.Volume) {
		return "it was plugged into the VMI alone, and its VM's template names another claim by the same name"
	}
	has := slices.ContainsFunc(vmi.Status.VolumeStatus, func(s v1.VolumeStatus) bool {
		return s.Name == m.Volume && s.HotplugVolume != nil && s.Phase == v1.VolumeReady &&
			s.PersistentVolumeClaimInfo != nil && s.PersistentVolumeClaimInfo.ClaimName == m.From
	})
	if !has {
		return "it is not plugged in, and is copied as soon as its phase is Ready"
	}
	return ""
}

// Held returns the template of a VM as far as hotpluggable volumes of its VMI are plugged and unplugged by it: without the
// other claims of those whose disks are to be copied, which are those that change their claim if byMigration is set, and
// those of unfinished moves.
func Held(vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec, byMigration bool, unfinished []Move) *v1.VirtualMachineInstanceSpec {
	drift := hotplugspec.ReadDrift(vmi.Annotations)
	out := *template
	out.Volumes = nil
	for i := range template.Volumes {
		v := template.Volumes[i]
		from := find(&vmi.Spec, v.Name)
		if from == nil || !machine.Hotpluggable(from) || !machine.Hotpluggable(&v) {
			out.Volumes = append(out.Volumes, v)
			continue
		}
		m := Move{Volume: v.Name, From: volumeclaim.Disk(&from.VolumeSource), To: volumeclaim.Disk(&v.VolumeSource)}
		switch {
		case m.From == m.To || !byMigration && !slices.Contains(unfinished, m):
			out.Volumes = append(out.Volumes, v)
		case drift.Added(v.Name):
			// As long as the template does not have it, it stays what it is: the VMI's alone.
		default:
			v.VolumeSource = from.VolumeSource
			out.Volumes = append(out.Volumes, v)
		}
	}
	return &out
}
