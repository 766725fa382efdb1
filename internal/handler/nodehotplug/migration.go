package nodehotplug

import (
	"maps"
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/machine"
)

// PluggedDisk is a disk that was plugged after the guest's start.
type PluggedDisk struct {
	Volume string
	Place  machine.Slot // zero for a medium in a drive
}

// Plugs has QEMU's plugged disks.
type Plugs struct {
	Disks []PluggedDisk
	// Detached has the volumes of disks that were taken by force while the guest keeps their devices.
	Detached []string
}

// PlugsOf returns the plugged disks.
func PlugsOf(disks map[string]diskhotplug.Disk) (plugs Plugs) {
	for _, volume := range slices.Sorted(maps.Keys(disks)) {
		switch disk := disks[volume]; disk.Stage {
		case diskhotplug.Plugged:
			plugs.Disks = append(plugs.Disks, PluggedDisk{volume, placeOf(disk)})
		case diskhotplug.Detached:
			plugs.Detached = append(plugs.Detached, volume)
		}
	}
	return plugs
}

// Received reports whether a QEMU that waits for a guest has all the guest's disks, each in its place and on its claim.
func Received(vmi *v1.VirtualMachineInstance, disks map[string]diskhotplug.Disk, places map[string]machine.Slot) bool {
	for volume, place := range places {
		disk, e := disks[volume], entryOf(vmi, volume)
		if disk.Stage != diskhotplug.Plugged || placeOf(disk) != place || disk.Claim != e.claim || !hotplug.InUse(e.phase) {
			return false
		}
	}
	return len(places) > 0
}

// Plugged returns the volumes of the spec that QEMU has.
func Plugged(vmi *v1.VirtualMachineInstance, disks map[string]diskhotplug.Disk) map[string]bool {
	plugged := map[string]bool{}
	for name, disk := range disks {
		plugged[name] = disk.Stage == diskhotplug.Plugged && disk.Claim == Claim(&vmi.Spec, name)
	}
	return plugged
}

func placeOf(disk diskhotplug.Disk) machine.Slot {
	return machine.Slot{Bus: v1.DiskBus(disk.Bus), Number: disk.Number}
}
