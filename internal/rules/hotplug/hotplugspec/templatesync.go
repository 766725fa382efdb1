package hotplugspec

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// Judge validates the hotpluggable volumes and disks of the spec at a path.
func Judge(spec *v1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if !machine.Hotpluggable(v) {
			continue
		}
		path := at.Child("volumes").Index(i)
		if spec.Domain.Devices.DisableHotplug {
			errs = append(errs, field.Forbidden(path, "a volume can't be hotpluggable while spec.domain.devices.disableHotplug is set"))
		}
		if diskAt(spec, v.Name) < 0 {
			errs = append(errs, field.Forbidden(path, "a hotpluggable volume needs a disk of its name"))
		}
	}
	disks := at.Child("domain", "devices", "disks")
	counted := map[v1.DiskBus]bool{}
	for i := range spec.Domain.Devices.Disks {
		d := &spec.Domain.Devices.Disks[i]
		if !hotplugSource(spec, d) {
			continue
		}
		if problem := busProblem(d); problem != "" {
			errs = append(errs, field.Forbidden(disks.Index(i), problem))
			continue
		}
		bus := machine.HotBus(d)
		if full := overfull(spec, bus); full != "" && !counted[bus] {
			errs = append(errs, field.Forbidden(disks.Index(i), full))
		}
		counted[bus] = true
	}
	return errs
}

// Lasting returns the spec without its hotpluggable volumes and their disks: a change of it needs a restart.
func Lasting(spec *v1.VirtualMachineInstanceSpec) *v1.VirtualMachineInstanceSpec {
	out := spec.DeepCopy()
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; machine.Hotpluggable(v) {
			remove(out, v.Name)
		}
	}
	// A nil list and an empty one are equivalent.
	if len(out.Volumes) == 0 {
		out.Volumes = nil
	}
	if len(out.Domain.Devices.Disks) == 0 {
		out.Domain.Devices.Disks = nil
	}
	return out
}

// SyncTemplate applies the volumes of the VM's template to a VMI, except for its drift, and reports a change.
func SyncTemplate(vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec) bool {
	drift := ReadDrift(vmi.Annotations)
	before := drift.text()
	changed := removeStale(vmi, template, &drift)
	drift.settle(&vmi.Spec, template)
	for i := range template.Volumes {
		if t := &template.Volumes[i]; !drift.removed(t.Name) && addMissing(vmi, template, t) {
			changed = true
		}
	}
	if text := drift.text(); text != before {
		drift.write(vmi)
		changed = true
	}
	return changed
}

// removeStale removes the volumes that the template lacks or has on another claim, and reports a change.
func removeStale(vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec, drift *Drift) bool {
	changed := false
	for _, v := range slices.Clone(vmi.Spec.Volumes) {
		if !machine.Hotpluggable(&v) || drift.Added(v.Name) {
			continue
		}
		if t := volumeclaim.Named(template.Volumes, v.Name); t == nil || !machine.Hotpluggable(t) || volumeclaim.Disk(&t.VolumeSource) != volumeclaim.Disk(&v.VolumeSource) {
			remove(&vmi.Spec, v.Name)
			forgetForced(vmi, v.Name)
			changed = true
		}
	}
	return changed
}

// addMissing adds a volume of the template if the VMI lacks it and its guest can get it now, and reports a change.
func addMissing(vmi *v1.VirtualMachineInstance, template *v1.VirtualMachineInstanceSpec, t *v1.Volume) bool {
	if !machine.Hotpluggable(t) || volumeclaim.Named(vmi.Spec.Volumes, t.Name) != nil || leaving(vmi, t) {
		return false
	}
	at, there := diskAt(template, t.Name), diskAt(&vmi.Spec, t.Name)
	if at < 0 || there >= 0 && vmi.Spec.Domain.Devices.Disks[there].CDRom == nil {
		return false
	}
	disk := template.Domain.Devices.Disks[at].DeepCopy()
	if there < 0 && disk.CDRom != nil {
		return false // a drive needs a restart, and its medium comes with it
	}
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, *t.DeepCopy())
	forgetForced(vmi, t.Name)
	if there < 0 {
		settle(disk) // admission has refused its problems in the template
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, *disk)
	}
	return true
}

// leaving reports whether another volume of this name is still being detached, or is a memory dump's.
func leaving(vmi *v1.VirtualMachineInstance, v *v1.Volume) bool {
	if slices.ContainsFunc(vmi.Spec.UtilityVolumes, func(u v1.UtilityVolume) bool { return u.Name == v.Name }) {
		return true
	}
	for i := range vmi.Status.VolumeStatus {
		s := &vmi.Status.VolumeStatus[i]
		if s.Name == v.Name && s.HotplugVolume != nil && s.PersistentVolumeClaimInfo != nil {
			return s.MemoryDumpVolume != nil || s.PersistentVolumeClaimInfo.ClaimName != volumeclaim.Disk(&v.VolumeSource)
		}
	}
	return false
}
