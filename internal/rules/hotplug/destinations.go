package hotplug

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration/volumemigration"
)

// A migration may copy a disk to another claim, which the pods at the target hold. The VMI's spec and status name the old
// claim; the write that makes the target the VMI's node sets the new claim and pod (decision 343).

// Destination is a plugged volume whose disk is copied during a migration.
type Destination struct {
	From, To Volume
	Unfilled bool // a DataVolume would overwrite the copy
}

// DestinationsOf returns the VMI's hotpluggable volumes whose disks are to be copied.
func DestinationsOf(vmi *v1.VirtualMachineInstance) []Destination {
	var out []Destination
	plugged := VolumesOf(&vmi.Spec)
	for _, m := range volumemigration.Of(vmi) {
		if from := (Volume{Name: m.Volume, Claim: m.From}); contains(plugged, from) {
			out = append(out, Destination{From: from, To: Volume{Name: m.Volume, Claim: m.To}})
		}
	}
	return out
}

// Arrive returns the volume status after a migration: the new claims, and the pods at the target.
func Arrive(vmi *v1.VirtualMachineInstance) []v1.VolumeStatus {
	list := slices.Clone(volumemigration.Target(vmi).Status.VolumeStatus)
	coming := comingTo(vmi)
	for _, d := range DestinationsOf(vmi) {
		for i := range list {
			s := &list[i]
			if s.Name != d.To.Name || s.HotplugVolume == nil {
				continue
			}
			// Until a pod at the target runs, the old name keeps the one at the source alive.
			for _, h := range coming {
				if h.UID != "" && contains(h.Volumes, d.To) {
					s.HotplugVolume = &v1.HotplugVolumeStatus{AttachPodName: h.Name, AttachPodUID: h.UID}
				}
			}
		}
	}
	return list
}

func arriving(vmi *v1.VirtualMachineInstance) []Entry { return EntriesOf(volumemigration.Target(vmi)) }
