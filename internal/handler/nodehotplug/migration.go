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
	// Place is zero for a medium in a drive.
	Place machine.Slot
}

// Plugs has the plugged disks of a guest that leaves, as QEMU reports them.
type Plugs struct {
	Disks []PluggedDisk
	// Detached has the volumes whose disks were taken by force from a guest that still has their devices.
	Detached []string
}

// Still returns the plugged disks if the last Look was to leave them unchanged; ok is false if it was not, or while
// the guest may still release a disk that it was asked for.
func (w *Worker) Still() (plugs Plugs, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for volume := range w.asked {
		if !w.refused[machine.DiskID(volume)] {
			return Plugs{}, false
		}
	}
	if !w.still || w.stale || w.disks == nil {
		return Plugs{}, false
	}
	for _, volume := range slices.Sorted(maps.Keys(w.disks)) {
		switch disk := w.disks[volume]; disk.Stage {
		case diskhotplug.Plugged:
			plugs.Disks = append(plugs.Disks, PluggedDisk{volume, placeOf(disk)})
		case diskhotplug.Detached:
			plugs.Detached = append(plugs.Detached, volume)
		}
	}
	return plugs, true
}

// Received reports whether a QEMU that waits for a guest has all disks that come with it, each in its place and on
// the claim in the VMI's status.
func (w *Worker) Received(vmi *v1.VirtualMachineInstance) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.arriving || w.stale || len(w.places) == 0 {
		return false
	}
	for volume, place := range w.places {
		disk, e := w.disks[volume], entryOf(vmi, volume)
		if disk.Stage != diskhotplug.Plugged || placeOf(disk) != place || disk.Claim != e.claim || !hotplug.InUse(e.phase) {
			return false
		}
	}
	return true
}

func placeOf(disk diskhotplug.Disk) machine.Slot {
	return machine.Slot{Bus: v1.DiskBus(disk.Bus), Number: disk.Number}
}

// forgetReleased forgets requests for disks that the guest no longer has. The caller holds w.mu.
func (w *Worker) forgetReleased() {
	maps.DeleteFunc(w.asked, func(volume string, _ bool) bool { return w.disks[volume].Stage != diskhotplug.Plugged })
}
