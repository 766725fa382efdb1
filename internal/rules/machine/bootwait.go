package machine

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// Markers are objects without effect in QEMU (-object, object-add). They keep state for which QEMU has no run state,
// since virt-handler has no journal across restarts.
const (
	// WaitMarker exists from QEMU's start to that of the guest's CPUs, if they wait for hotplugged volumes (decision 230)
	// or for a link that is down from the start (decision 391).
	WaitMarker = "waits-for-volumes"
	// PauseMarker exists while a user wants a guest paused that is stopped for another reason (decision 200).
	PauseMarker = "paused-by-user"
	// MarkerType is the QOM type of all markers.
	MarkerType = launch.MarkerType
)

// Awaited is a volume to plug before the guest's CPUs start.
type Awaited struct {
	Volume string
	// Boots means that the guest may boot from this volume only.
	Boots bool
}

// AwaitedVolumes returns a spec's hotpluggable volumes that have a disk, in the order of the disks.
func AwaitedVolumes(spec *v1.VirtualMachineInstanceSpec) []Awaited {
	var awaited []Awaited
	b := newBuilder(Input{VMI: &v1.VirtualMachineInstance{Spec: *spec}})
	ordered := b.bootOrdered()
	boots := !ordered && !bootsWithout(spec)
	for i := range b.spec.Devices.Disks {
		d := &b.spec.Devices.Disks[i]
		if v := volumeclaim.Named(spec.Volumes, d.Name); v != nil && Hotpluggable(v) {
			awaited = append(awaited, Awaited{Volume: d.Name, Boots: boots || ordered && d.BootOrder != nil})
		}
	}
	return awaited
}

// bootsWithout reports whether a guest without a boot order can boot from a source that is not hotpluggable: a kernel,
// or a disk that is neither initially empty nor made by Drydock.
func bootsWithout(spec *v1.VirtualMachineInstanceSpec) bool {
	if f := spec.Domain.Firmware; f != nil && f.KernelBoot != nil {
		return true
	}
	return slices.ContainsFunc(spec.Domain.Devices.Disks, func(d v1.Disk) bool {
		v := volumeclaim.Named(spec.Volumes, d.Name)
		if v == nil || Hotpluggable(v) || v.EmptyDisk != nil {
			return false
		}
		_, image := volumeImage(v)
		return image
	})
}

// halt starts QEMU with stopped CPUs for a migration, for a user, or to plug volumes or set links down before the
// firmware runs.
func (b *builder) halt() {
	if b.in.Incoming != "" {
		b.named("migration", string(b.in.Incoming))
		b.option("S", "")
		b.option("incoming", "defer")
		b.object(Properties{"qom-type": MarkerType, "id": IncomingMarker(b.in.Incoming)})
		return
	}
	paused := b.vmi.Spec.StartStrategy != nil && *b.vmi.Spec.StartStrategy == v1.StartStrategyPaused
	// All links of a new QEMU are up.
	waits := len(AwaitedVolumes(&b.vmi.Spec)) > 0 || slices.ContainsFunc(b.spec.Devices.Interfaces,
		func(i v1.Interface) bool { return i.State == v1.InterfaceStateLinkDown })
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

// BootIndexes returns the boot order of the disks of a guest, with the plugged ones, before its CPUs start. First it
// removes every device from the order: the spec may have changed since QEMU started, and QEMU refuses two devices with
// one place.
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
