// Package volumeclaim owns how a PVC and its use follow from a volume's source. It imports only API types. Its callers
// decide who may share a claim.
package volumeclaim

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// Claim is a volume's use of a PVC, zero for none.
type Claim struct {
	Name string
	// ReadOnly is the mount's mode; the guest's disk has its own.
	ReadOnly bool
	// Backing means that an overlay takes all writes of the guest: the claim has the disk's initial content and never
	// its state.
	Backing bool
}

// Of returns the claim of a volume's source, and whether there is one. A DataVolume's claim has its name.
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

// Name returns the claim's name, "" for none.
func Name(source *v1.VolumeSource) string {
	claim, _ := Of(source)
	return claim.Name
}

// Disk returns the claim whose content is the volume's disk. Two disks on one such claim see each other's writes.
func Disk(source *v1.VolumeSource) string {
	if claim, _ := Of(source); !claim.Backing {
		return claim.Name
	}
	return ""
}

// Written returns the claim that the guest can write to.
func Written(source *v1.VolumeSource) string {
	if claim, _ := Of(source); !claim.ReadOnly {
		return claim.Name
	}
	return ""
}

// Info returns what a status has of the claim of that name, which may be nil.
func Info(name string, claim *corev1.PersistentVolumeClaim) *v1.PersistentVolumeClaimInfo {
	info := &v1.PersistentVolumeClaimInfo{ClaimName: name}
	if claim != nil {
		info.AccessModes, info.VolumeMode = claim.Spec.AccessModes, claim.Spec.VolumeMode
		info.Capacity, info.Requests = claim.Status.Capacity, claim.Spec.Resources.Requests
		info.Preallocated = preallocated(claim.Annotations)
	}
	return info
}

// AnnPreallocation "true" on a claim means that each block of its disk is allocated, and is to stay so.
const AnnPreallocation = "cdi.kubevirt.io/storage.preallocation"

// As in KubeVirt, the annotations may have any prefix.
func preallocated(annotations map[string]string) bool {
	for key, value := range annotations {
		if _, name, _ := strings.Cut(key, "/"); value == "true" && (name == "storage.preallocation" || name == "storage.thick-provisioned") {
			return true
		}
	}
	return false
}

// Named returns the volume of a name, nil for none. It points into the list.
func Named(volumes []v1.Volume, name string) *v1.Volume {
	for i := range volumes {
		if volumes[i].Name == name {
			return &volumes[i]
		}
	}
	return nil
}

// Names returns the volumes' claims without duplicates, in their order.
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

// UsedBy returns the claims that a VMI uses, without duplicates: those of its volumes, also of volumes that are no disks,
// those of volumes that are being detached (in its status only), and those that its disks are to be copied to.
func UsedBy(vmi *v1.VirtualMachineInstance) []string {
	names := Names(vmi.Spec.Volumes)
	for i := range vmi.Spec.UtilityVolumes {
		if name := vmi.Spec.UtilityVolumes[i].ClaimName; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range slices.Concat(InStatus(vmi), Destinations(vmi)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Destinations returns the claims that the VMI's disks are to be copied to.
func Destinations(vmi *v1.VirtualMachineInstance) []string {
	var names []string
	for _, m := range vmi.Status.MigratedVolumes {
		if m.DestinationPVCInfo != nil {
			names = append(names, m.DestinationPVCInfo.ClaimName)
		}
	}
	return names
}

// InStatus returns the claims in the VMI's status.
func InStatus(vmi *v1.VirtualMachineInstance) []string {
	var names []string
	for _, s := range vmi.Status.VolumeStatus {
		if s.PersistentVolumeClaimInfo != nil {
			names = append(names, s.PersistentVolumeClaimInfo.ClaimName)
		}
	}
	return names
}
