// Package volumeclaim says which PVC a volume of a VMI is on, and what for.
//
// It owns how the claim follows from a volume's source. It is pure and imports nothing
// but API types. Who may use a claim beside whom is for its callers to decide.
package volumeclaim

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// Claim is what a volume has of a PVC. The zero value is that of a volume on none.
type Claim struct {
	Name string
	// ReadOnly is how the claim is mounted. Whether the guest's disk is read-only is
	// another thing, which the disk says.
	ReadOnly bool
	// Backing means that the claim is below an overlay, which takes all that the guest
	// writes: the claim's content is the disk's beginning and never its state.
	Backing bool
}

// Of returns the claim of a volume's source, and whether the volume is on one. A
// DataVolume's claim has its name.
func Of(source *v1.VolumeSource) (Claim, bool) {
	switch {
	case source.PersistentVolumeClaim != nil:
		return Claim{Name: source.PersistentVolumeClaim.ClaimName, ReadOnly: source.PersistentVolumeClaim.ReadOnly}, true
	case source.DataVolume != nil:
		return Claim{Name: source.DataVolume.Name}, true
	case source.Ephemeral != nil && source.Ephemeral.PersistentVolumeClaim != nil:
		return Claim{Name: source.Ephemeral.PersistentVolumeClaim.ClaimName, ReadOnly: true, Backing: true}, true
	}
	return Claim{}, false
}

// Name returns the name of the claim that a volume is on, "" for none.
func Name(source *v1.VolumeSource) string {
	claim, _ := Of(source)
	return claim.Name
}

// Disk returns the name of the claim whose content is the volume's disk, "" for none.
// Of two disks on one such claim, each sees what the other does to it.
func Disk(source *v1.VolumeSource) string {
	if claim, _ := Of(source); !claim.Backing {
		return claim.Name
	}
	return ""
}

// Written returns the name of the claim that the volume lets the guest write to, "" for
// none.
func Written(source *v1.VolumeSource) string {
	if claim, _ := Of(source); !claim.ReadOnly {
		return claim.Name
	}
	return ""
}

// Names lists the claims that the volumes are on, each once, in the order of the
// volumes.
func Names(volumes []v1.Volume) []string {
	var names []string
	seen := map[string]bool{}
	for i := range volumes {
		name := Name(&volumes[i].VolumeSource)
		if name != "" && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// UsedBy lists the claims that a VMI uses, each once: those of its volumes, those that its
// status tells of, of volumes on their way out of the guest, and those that its disks are
// copied to.
func UsedBy(vmi *v1.VirtualMachineInstance) []string {
	names := Names(vmi.Spec.Volumes)
	for _, name := range slices.Concat(InStatus(vmi), Destinations(vmi)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Destinations lists the claims that disks of the VMI are to be copied to.
func Destinations(vmi *v1.VirtualMachineInstance) []string {
	var names []string
	for _, m := range vmi.Status.MigratedVolumes {
		if m.DestinationPVCInfo != nil {
			names = append(names, m.DestinationPVCInfo.ClaimName)
		}
	}
	return names
}

// InStatus lists the claims that the VMI's status tells of, in its order.
func InStatus(vmi *v1.VirtualMachineInstance) []string {
	var names []string
	for _, s := range vmi.Status.VolumeStatus {
		if s.PersistentVolumeClaimInfo != nil {
			names = append(names, s.PersistentVolumeClaimInfo.ClaimName)
		}
	}
	return names
}
