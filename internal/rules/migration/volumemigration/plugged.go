package volumemigration

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplug/hotplugspec"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// If a hotpluggable volume's claim changes, the old disk is unplugged and another one plugged. With
// changes by migration, the disk is copied and stays plugged (decision 343).

// Exchange is a hotpluggable volume of a template whose claim changes and can't be copied.
type Exchange struct {
	Index int // of the volume in the template
	Why   string
}

// Exchanges returns the volumes whose disk would be replaced instead of copied.
func Exchanges(before, after *v1.VirtualMachineInstanceSpec) []Exchange {
	var list []Exchange
	for i := range after.Volumes {
		to := &after.Volumes[i]
		from := volumeclaim.Named(before.Volumes, to.Name)
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

// TemplateForPlugging returns the template for plugging the VMI's hotpluggable volumes, without the new claims of disks
// that will be copied: all that change if byMigration, else those of unfinished moves.
func TemplateForPlugging(vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec, byMigration bool, unfinished []Move) *v1.VirtualMachineInstanceSpec {
	drift := hotplugspec.ReadDrift(vmi.Annotations)
	out := *template
	out.Volumes = nil
	for i := range template.Volumes {
		v := template.Volumes[i]
		from := volumeclaim.Named(vmi.Spec.Volumes, v.Name)
		if from == nil || !machine.Hotpluggable(from) || !machine.Hotpluggable(&v) {
			out.Volumes = append(out.Volumes, v)
			continue
		}
		m := Move{Volume: v.Name, From: volumeclaim.Disk(&from.VolumeSource), To: volumeclaim.Disk(&v.VolumeSource)}
		switch {
		case m.From == m.To || !byMigration && !slices.Contains(unfinished, m):
			out.Volumes = append(out.Volumes, v)
		case drift.Added(v.Name):
			// A volume that the template lacks stays the VMI's own.
		default:
			v.VolumeSource = from.VolumeSource
			out.Volumes = append(out.Volumes, v)
		}
	}
	return &out
}
