// Package hotplugspec has the rules about hotpluggable volumes in specs: which are valid, how one is added and removed, and
// how a VMI follows its VM's template.
//
// It must not import a client. Packages hotplug and handler/nodehotplug attach and plug a volume.
package hotplugspec

import (
	"fmt"
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// Refusal is why a volume can't be added or removed. The text before the colon is KubeVirt's.
type Refusal struct {
	what, name, why string // what is the verb with its object
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("Unable to %s [%s] because %s", r.what, r.name, r.why)
}

// Add adds a volume and its disk. An empty CD drive gets only the volume.
func Add(spec *v1.VirtualMachineInstanceSpec, o *v1.AddVolumeOptions) error {
	refuse := func(format string, args ...any) error {
		return &Refusal{"add volume", o.Name, fmt.Sprintf(format, args...)}
	}
	volume := v1.Volume{Name: o.Name, VolumeSource: source(o.VolumeSource)}
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.Name == o.Name {
			return refuse("volume with that name already exists")
		} else if claim := volumeclaim.Disk(&v.VolumeSource); claim != "" && claim == volumeclaim.Disk(&volume.VolumeSource) {
			return &Refusal{"add volume source", claim, fmt.Sprintf("it already exists: volume [%s] is on that PVC", v.Name)}
		}
	}
	if spec.Domain.Devices.DisableHotplug {
		return refuse("spec.domain.devices.disableHotplug is set")
	}
	changed := spec.DeepCopy()
	changed.Volumes = append(changed.Volumes, volume)
	if at := diskAt(spec, o.Name); at >= 0 {
		if spec.Domain.Devices.Disks[at].CDRom == nil {
			return refuse("disk with that name already exists")
		}
		*spec = *changed
		return nil
	}
	disk := *o.Disk.DeepCopy()
	disk.Name = o.Name
	if problem := settle(&disk); problem != "" {
		return refuse("%s", problem)
	}
	changed.Domain.Devices.Disks = append(changed.Domain.Devices.Disks, disk)
	if full := overfull(changed, machine.HotBus(&disk)); full != "" {
		return refuse("%s", full)
	}
	*spec = *changed
	return nil
}

func source(s *v1.HotplugVolumeSource) v1.VolumeSource {
	out := v1.VolumeSource{}
	if s.DataVolume != nil {
		out.DataVolume = s.DataVolume.DeepCopy()
		out.DataVolume.Hotpluggable = true
	}
	if s.PersistentVolumeClaim != nil {
		out.PersistentVolumeClaim = s.PersistentVolumeClaim.DeepCopy()
		out.PersistentVolumeClaim.Hotpluggable = true
	}
	return out
}

// settle sets the disk's bus and returns why it can't be hotplugged, "" if it can.
func settle(d *v1.Disk) (problem string) {
	switch {
	case d.CDRom != nil:
		return "only a medium can be put into a cdrom, whose drive must be among the machine's disks"
	case d.LUN != nil:
		d.LUN.Bus = machine.HotBus(d)
	case d.Disk == nil:
		d.Disk = &v1.DiskTarget{Bus: v1.DiskBusSCSI}
	default:
		d.Disk.Bus = machine.HotBus(d)
	}
	return busProblem(d)
}

func busProblem(d *v1.Disk) string {
	switch bus := machine.HotBus(d); {
	case d.LUN != nil && bus != v1.DiskBusSCSI:
		return fmt.Sprintf("a hotplugged lun must be on the bus scsi, not %s", bus)
	case bus != v1.DiskBusSCSI && bus != v1.DiskBusVirtio:
		return fmt.Sprintf("a hotplugged disk must be on the bus scsi or virtio, not %s", bus)
	case d.DedicatedIOThread != nil && *d.DedicatedIOThread:
		return "a hotplugged disk can't have a thread of its own (dedicatedIOThread)"
	}
	return ""
}

func overfull(spec *v1.VirtualMachineInstanceSpec, bus v1.DiskBus) string {
	count := 0
	for i := range spec.Domain.Devices.Disks {
		if d := &spec.Domain.Devices.Disks[i]; hotplugSource(spec, d) && machine.HotBus(d) == bus {
			count++
		}
	}
	if room := machine.Room(spec, bus); count > room {
		return fmt.Sprintf("the bus %s is full: this machine takes at most %d disks on it beside those that it starts with", bus, room)
	}
	return ""
}

// hotplugSource reports whether a disk is plugged together with its volume.
func hotplugSource(spec *v1.VirtualMachineInstanceSpec, d *v1.Disk) bool {
	v := volumeclaim.Named(spec.Volumes, d.Name)
	return v != nil && machine.Hotpluggable(v) && d.CDRom == nil
}

// Remove removes a volume and its disk; a CD drive loses only its medium.
func Remove(spec *v1.VirtualMachineInstanceSpec, name string) error {
	v := volumeclaim.Named(spec.Volumes, name)
	switch {
	case v == nil:
		return &Refusal{"remove volume", name, "it does not exist"}
	case !machine.Hotpluggable(v):
		return &Refusal{"remove volume", name, "it is not hotpluggable"}
	}
	remove(spec, name)
	return nil
}

func remove(spec *v1.VirtualMachineInstanceSpec, name string) {
	spec.Volumes = slices.DeleteFunc(slices.Clone(spec.Volumes), func(v v1.Volume) bool { return v.Name == name })
	spec.Domain.Devices.Disks = slices.DeleteFunc(slices.Clone(spec.Domain.Devices.Disks), func(d v1.Disk) bool {
		return d.Name == name && d.CDRom == nil
	})
}

func diskAt(spec *v1.VirtualMachineInstanceSpec, name string) int {
	return slices.IndexFunc(spec.Domain.Devices.Disks, func(d v1.Disk) bool { return d.Name == name })
}
