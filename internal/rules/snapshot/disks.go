package snapshot

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// Class is a VolumeSnapshotClass or VolumeGroupSnapshotClass.
type Class struct {
	Name, Driver string
	// Default means that it is its driver's default class.
	Default bool
}

// OnClaims returns the names of volumes whose content is on a claim, with the claims' names. It omits the claim below an
// overlay, which is not the VM's state.
func OnClaims(volumes []v1.Volume) [][2]string {
	var out [][2]string
	for i := range volumes {
		if claim := volumeclaim.Disk(&volumes[i].VolumeSource); claim != "" {
			out = append(out, [2]string{volumes[i].Name, claim})
		}
	}
	return out
}

// Kept returns the volumes that a snapshot includes: those on claims, and the claim of the VM's state.
func Kept(vm *v1.VirtualMachine) [][2]string {
	out := OnClaims(vm.Spec.Template.Spec.Volumes)
	if claim := stateclaim.ClaimOf(vm); claim != "" {
		out = append(out, [2]string{stateclaim.Volume, claim})
	}
	return out
}

// Append adds the disk of a volume in Kept. A VM that has never had a guest has no state yet, and another owner's claim
// is not the VM's state, whatever its name.
func Append(disks []Disk, vm *v1.VirtualMachine, disk Disk) []Disk {
	if disk.Volume != stateclaim.Volume {
		return append(disks, disk)
	}
	if disk.Claim == nil || disk.Claim.DeletionTimestamp == nil && disk.Claim.Status.Phase != corev1.ClaimBound {
		return disks
	}
	if err := stateclaim.Check(stateclaim.Next(vm), disk.Claim); err != nil && (disk.Waits == "" || !metav1.IsControlledBy(disk.Claim, vm)) {
		disk.Class, disk.Waits, disk.Why = "", "", fmt.Sprintf("%s (%v)", disk.Volume, err)
	}
	return append(disks, disk)
}

// NewDisk returns the disk for a volume's claim. filler is the DataVolume that fills it, driver the CSI driver; all may
// be none.
func NewDisk(volume [2]string, claim *corev1.PersistentVolumeClaim, filler *cdiv1.DataVolume, driver string, classes []Class) Disk {
	disk, name := Disk{Volume: volume[0], Claim: claim}, volume[1]
	switch {
	case claim == nil:
		disk.Waits = fmt.Sprintf("the claim %s of the volume %s does not exist", name, disk.Volume)
	case claim.DeletionTimestamp != nil:
		disk.Waits = fmt.Sprintf("the claim %s of the volume %s is being deleted", name, disk.Volume)
	case filler != nil && filler.Status.Phase != cdiv1.Succeeded:
		disk.Waits = fmt.Sprintf("the DataVolume %s of the volume %s is not filled yet (phase %s)", name, disk.Volume, filler.Status.Phase)
	case datavolume.AwaitsUpload(claim):
		disk.Waits = datavolume.Unfilled(claim, filler)
	case claim.Status.Phase != corev1.ClaimBound:
		disk.Waits = fmt.Sprintf("the claim %s of the volume %s is not bound yet", name, disk.Volume)
	default:
		disk.Driver = driver
		class, why := classFor(name, driver, classes)
		if disk.Class = class; class == "" {
			disk.Why = fmt.Sprintf("%s (%s)", disk.Volume, why)
		}
	}
	return disk
}

// obstacle returns KubeVirt's name of what the disk waits for.
func (d *Disk) obstacle() string {
	switch {
	case d.Claim == nil:
		return "volume doesnt exist"
	case d.Claim.DeletionTimestamp != nil:
		return "volume is being deleted"
	case d.Claim.Status.Phase != corev1.ClaimBound:
		return "volume not bound"
	}
	return "volume not populated"
}

func classFor(claim, driver string, classes []Class) (class, why string) {
	if driver == "" {
		return "", fmt.Sprintf("the claim %s is on no CSI volume", claim)
	}
	if class = choose(classes, driver); class == "" {
		return "", fmt.Sprintf("there is no VolumeSnapshotClass for the driver %s of the claim %s", driver, claim)
	}
	return class, ""
}

// Without a default class, the first by name counts.
func choose(classes []Class, driver string) string {
	fitting := slices.DeleteFunc(slices.Clone(classes), func(c Class) bool { return c.Driver != driver })
	slices.SortFunc(fitting, func(a, b Class) int {
		if a.Default != b.Default {
			if a.Default {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	if len(fitting) == 0 {
		return ""
	}
	return fitting[0].Name
}
