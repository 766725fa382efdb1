package machine

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
)

// Markers are objects without effect in QEMU (-object, object-add). They hold
// what QEMU has no run state for and virt-handler, which keeps no journal, must
// know again after a restart.
const (
	// WaitMarker is there from QEMU's start until the guest's CPUs have been
	// started, if they wait for hotplugged volumes (decision 230), or for a link that
	// is down from the start (decision 391).
	WaitMarker = "waits-for-volumes"
	// PauseMarker is there while the user wants a guest paused that is stopped for
	// another reason (decision 200).
	PauseMarker = "paused-by-user"
	// MarkerType is the type of all markers, those of migrations included.
	MarkerType = launch.MarkerType
)

// Awaited is a volume that is to be in the guest before its CPUs start.
type Awaited struct {
	Volume string
	// Boots means that the firmware may find what it boots only there.
	Boots bool
}

// AwaitedVolumes are the hotpluggable volumes of a spec that have a disk, in the
// order of the disks.
func AwaitedVolumes(spec *v1.VirtualMachineInstanceSpec) []Awaited {
	var awaited []Awaited
	b := newBuilder(Input{VMI: &v1.VirtualMachineInstance{Spec: *spec}})
	ordered := b.bootOrdered()
	boots := !ordered && !bootsWithout(spec)
	for i := range b.spec.Devices.Disks {
		d := &b.spec.Devices.Disks[i]
		if v := findVolume(spec, d.Name); v != nil && Hotpluggable(v) {
			awaited = append(awaited, Awaited{Volume: d.Name, Boots: boots || ordered && d.BootOrder != nil})
		}
	}
	return awaited
}

// bootsWithout reports whether a guest without a boot order has something to boot
// that is not hotpluggable: a kernel of its own, or a disk that neither starts
// empty nor is made by Drydock.
func bootsWithout(spec *v1.VirtualMachineInstanceSpec) bool {
	if f := spec.Domain.Firmware; f != nil && f.KernelBoot != nil {
		return true
	}
	return slices.ContainsFunc(spec.Domain.Devices.Disks, func(d v1.Disk) bool {
		v := findVolume(spec, d.Name)
		if v == nil || Hotpluggable(v) || v.EmptyDisk != nil {
			return false
		}
		_, image := volumeImage(v)
		return image
	})
}

// startsLinked reports whether all links are up when the guest starts, as they are in a new QEMU.
func startsLinked(spec *v1.VirtualMachineInstanceSpec) bool {
	return !slices.ContainsFunc(spec.Domain.Devices.Interfaces, func(i v1.Interface) bool { return i.State == v1.InterfaceStateLinkDown })
}

// halt has QEMU start with the CPUs stopped, if the user wants that, or if there
// is something to be done before the firmware runs: volumes have to be plugged, or links
// switched off. A guest that arrives from elsewhere has been started long ago.
func (b *builder) halt() {
	if b.in.Incoming != "" {
		b.arrive()
		return
	}
	paused := b.vmi.Spec.StartStrategy != nil && *b.vmi.Spec.StartStrategy == v1.StartStrategyPaused
	waits := len(AwaitedVolumes(&b.vmi.Spec)) > 0 || !startsLinked(&b.vmi.Spec)
	if paused || waits {
		b.option("S", "")
	}
	if !waits {
		return
	}
	b.object(Properties{"qom-type": MarkerType, "id": WaitMarker})
	if paused {
		b.object(Properties{"qom-type": MarkerType, "id": PauseMarker})
	}
}

// BootIndex is a device's place in the boot order; -1 for none.
type BootIndex struct {
	Device string
	Index  int
}

// BootIndexes are the places in the boot order of the disks that a guest has
// before its CPUs start: those that it started with, and those of the
// hotpluggable volumes that are plugged. Every device is taken out of the order
// before any gets its place: the spec may have changed since QEMU started, and
// QEMU refuses two devices with one place.
func BootIndexes(spec *v1.VirtualMachineInstanceSpec, plugged map[string]bool) []BootIndex {
	b := newBuilder(Input{VMI: &v1.VirtualMachineInstance{Spec: *spec}})
	var none, places []BootIndex
	for i := range b.spec.Devices.Disks {
		d := &b.spec.Devices.Disks[i]
		if b.hot[d.Name] && !plugged[d.Name] {
			continue
		}
		none = append(none, BootIndex{DiskID(d.Name), -1})
		if index, ok := b.bootIndex(d.BootOrder, i); ok {
			places = append(places, BootIndex{DiskID(d.Name), index})
		}
	}
	return append(none, places...)
}
