package hotplug

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/volumemigration"
)

// A disk may be copied to another claim while its guest moves. Until the guest has arrived the VMI's spec and status name
// the old claim, which the pods at the source have; the pods at the target have the new one from the beginning. The
// volume changes its claim, and names its new pod, in the write that makes the target's node the VMI's (decision 343).

// Destination is a plugged volume whose disk is copied when its guest moves.
type Destination struct {
	// From is the volume on the claim that the guest writes to, To on the one that it is copied to.
	From, To Volume
	// Unfilled means that a DataVolume has not filled the claim yet: what fills it would write over the copy.
	Unfilled bool
}

// DestinationsOf are the hotpluggable volumes of a VMI whose disks are to be copied to other claims.
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

// Arrive returns the volume status of a VMI whose guest runs where its migration was to bring it: volumes whose disks were
// copied are on their new claims, and come from the pods that hold these there.
func Arrive(vmi *v1.VirtualMachineInstance) []v1.VolumeStatus {
	list := slices.Clone(volumemigration.Target(vmi).Status.VolumeStatus)
	coming := comingTo(vmi)
	for _, d := range DestinationsOf(vmi) {
		for i := range list {
			s := &list[i]
			if s.Name != d.To.Name || s.HotplugVolume == nil {
				continue
			}
			// While none of them is known to run, the status goes on naming the pod at the source, which stays until another
			// one is named.
			for _, h := range coming {
				if h.UID != "" && contains(h.Volumes, d.To) {
					s.HotplugVolume = &v1.HotplugVolumeStatus{AttachPodName: h.Name, AttachPodUID: h.UID}
				}
			}
		}
	}
	return list
}

// arriving is what the status of a VMI says of its volumes, on the claims that they have at the target of its migration.
func arriving(vmi *v1.VirtualMachineInstance) []Entry {
	return EntriesOf(volumemigration.Target(vmi))
}

// there is a volume on the claim that it has at the target of the migration.
func (p *planning) there(v Volume) Volume {
	for _, d := range p.Destinations {
		if d.From == v {
			return d.To
		}
	}
	return v
}

// filled reports whether all claims of an attachment pod hold what they are to hold before a guest's disk is copied there.
func (p *planning) filled(h *AttachmentPod) bool {
	return !slices.ContainsFunc(p.Destinations, func(d Destination) bool { return d.Unfilled && contains(h.Volumes, d.To) })
}
