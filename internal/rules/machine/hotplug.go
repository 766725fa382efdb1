package machine

import (
	"errors"
	"fmt"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// maxSCSIDisks is the number of LUNs that guests scan by default. QEMU supports more.
const maxSCSIDisks = 256

// Hotpluggable reports whether a volume is plugged into a running guest: the launcher pod and the machine start
// without it.
func Hotpluggable(v *v1.Volume) bool {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.Hotpluggable
	case v.DataVolume != nil:
		return v.DataVolume.Hotpluggable
	}
	return false
}

// hotDisks returns the disks that are plugged with their volume. A CD drive stays: only its medium is exchanged.
func hotDisks(spec *v1.VirtualMachineInstanceSpec) map[string]bool {
	hot := map[string]bool{}
	for i := range spec.Volumes {
		if Hotpluggable(&spec.Volumes[i]) {
			hot[spec.Volumes[i].Name] = true
		}
	}
	for i := range spec.Domain.Devices.Disks {
		if d := &spec.Domain.Devices.Disks[i]; d.CDRom != nil {
			delete(hot, d.Name)
		}
	}
	return hot
}

// Slot is a LUN of the SCSI controller, or a virtio disk's root port.
type Slot struct {
	Bus    v1.DiskBus `json:"bus"`
	Number int        `json:"number"`
}

// FreeSlot returns a slot for a volume's disk: if possible that of the spec's order, where a restarted guest finds it.
func FreeSlot(spec *v1.VirtualMachineInstanceSpec, volume string, taken []Slot) (Slot, error) {
	bus, all := slots(spec, volume)
	used := map[Slot]bool{}
	for _, s := range taken {
		used[s] = true
	}
	nth := 0
	hot := hotDisks(spec)
	for i := range spec.Domain.Devices.Disks {
		d := &spec.Domain.Devices.Disks[i]
		if d.Name == volume {
			break
		}
		if hot[d.Name] && HotBus(d) == bus {
			nth++
		}
	}
	if nth < len(all) && !used[all[nth]] {
		return all[nth], nil
	}
	for _, s := range all {
		if !used[s] {
			return s, nil
		}
	}
	return Slot{}, fmt.Errorf("the bus %s is full: this machine takes at most %d more disks than it started with", bus, len(all))
}

// slots returns all slots on the bus of a volume's hotplugged disk, in order.
func slots(spec *v1.VirtualMachineInstanceSpec, volume string) (v1.DiskBus, []Slot) {
	bus := v1.DiskBus("")
	for i := range spec.Domain.Devices.Disks {
		if d := &spec.Domain.Devices.Disks[i]; d.Name == volume {
			bus = HotBus(d)
		}
	}
	var all []Slot
	switch bus {
	case v1.DiskBusSCSI:
		// The first LUNs are those of disks with which the machine starts.
		lun, hot := 0, hotDisks(spec)
		for i := range spec.Domain.Devices.Disks {
			if d := &spec.Domain.Devices.Disks[i]; !hot[d.Name] && HotBus(d) == bus {
				lun++
			}
		}
		for ; lun < maxSCSIDisks; lun++ {
			all = append(all, Slot{bus, lun})
		}
	case v1.DiskBusVirtio:
		b := newBuilder(Input{VMI: &v1.VirtualMachineInstance{Spec: *spec}})
		b.ports()
		for _, port := range b.placement.free() {
			all = append(all, Slot{bus, port})
		}
	}
	return bus, all
}

// HotBus returns the bus of a hotplugged disk, by default SCSI, which supports many disks and needs no PCI ports.
func HotBus(d *v1.Disk) v1.DiskBus {
	if d.CDRom == nil && (d.Disk == nil || d.Disk.Bus == "") && (d.LUN == nil || d.LUN.Bus == "") {
		return v1.DiskBusSCSI
	}
	return diskBus(d)
}

// Room returns how many disks can be plugged into the bus, besides those that the machine starts with.
func Room(spec *v1.VirtualMachineInstanceSpec, bus v1.DiskBus) int {
	probe := spec.DeepCopy()
	const name = "room"
	probe.Domain.Devices.Disks = append(probe.Domain.Devices.Disks, v1.Disk{
		Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: bus}},
	})
	probe.Volumes = append(probe.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
		DataVolume: &v1.DataVolumeSource{Name: name, Hotpluggable: true},
	}})
	_, all := slots(probe, name)
	return len(all)
}

// Plug has a volume's QEMU objects.
type Plug struct {
	// Blockdevs are in the order of creation; the last is the top node.
	Blockdevs []Properties
	// Device is nil when the medium of an existing drive is exchanged.
	Device Properties
}

// BuildPlug returns the plug of a volume whose image is in in.Images.
func BuildPlug(in Input, volume string, slot Slot) (Plug, error) {
	b := newBuilder(in)
	if b.spec.Devices.DisableHotplug {
		return Plug{}, errors.New("spec.domain.devices.disableHotplug is set: this machine takes no disks while it runs")
	}
	source := volumeclaim.Named(b.vmi.Spec.Volumes, volume)
	for i := range b.spec.Devices.Disks {
		spec := &b.spec.Devices.Disks[i]
		if spec.Name != volume || source == nil {
			continue
		}
		d := disk{spec: spec, path: fmt.Sprintf("devices.disks[%d]", i), bus: slot.Bus, nth: slot.Number, index: i}
		b.plug(d, source)
		if len(b.errs) > 0 {
			return Plug{}, errors.Join(b.errs...)
		}
		plug := Plug{Blockdevs: b.Blockdevs}
		if len(b.Devices) > 0 {
			plug.Device = b.Devices[0]
		}
		return plug, nil
	}
	return Plug{}, fmt.Errorf("the VMI has no disk for the volume %q", volume)
}

func (b *builder) plug(d disk, source *v1.Volume) {
	node, ok := b.source(d, source)
	if !ok || d.spec.CDRom != nil {
		return
	}
	device := Properties{"id": DiskID(d.spec.Name), "drive": node.name}
	if d.spec.LUN == nil {
		node.apply(device)
	}
	if d.bus == v1.DiskBusVirtio {
		// attach finds the port by the disk's count among its kind.
		b.placement.disks, d.nth = []int{d.nth}, 0
	}
	b.attach(d, device)
	b.describe(d, device)
	if d.spec.Serial == "" && d.spec.LUN == nil {
		device["serial"] = d.spec.Name[:min(len(d.spec.Name), MaxSerial[d.bus])]
	}
	b.device(device)
}

// ReadOnly reports whether the guest may only read a volume.
func ReadOnly(spec *v1.VirtualMachineInstanceSpec, volume string) bool {
	if v := volumeclaim.Named(spec.Volumes, volume); v != nil && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly {
		return true
	}
	for i := range spec.Domain.Devices.Disks {
		if d := &spec.Domain.Devices.Disks[i]; d.Name == volume {
			return isReadOnly(d)
		}
	}
	return false
}

// IsDrive reports whether the volume is a drive's medium.
func IsDrive(spec *v1.VirtualMachineInstanceSpec, volume string) bool {
	for i := range spec.Domain.Devices.Disks {
		if d := &spec.Domain.Devices.Disks[i]; d.Name == volume {
			return d.CDRom != nil
		}
	}
	return false
}

// DetachedNode returns the name of the block node that replaces a forcibly removed disk.
func DetachedNode(volume string) string { return nodeName("x-", volume) }

// PlugNodes returns the names of a plug's block nodes, in the order of Blockdevs.
func PlugNodes(volume string) []string { return []string{nodeName("f-", volume), NodeName(volume)} }
