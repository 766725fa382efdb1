// Package disk makes what a VMI's disks need beyond what its launcher pod
// brings: ISO images of cloud-init data, ConfigMaps, Secrets and the like, the
// raw image in an empty claim or at a hostDisk's path, and the ownership that
// lets QEMU's unprivileged process open them.
//
// NewPlan decides, from the VMI alone; Plan.Carry acts on the pod's volumes from
// outside of the pod. It never overwrites what exists, so all of it can be
// repeated while the guest runs. virt-launcher, which has no privileges, inspects
// images and makes overlays.
package disk

import (
	"errors"
	"fmt"
	"path"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/iso"
	"drydock.dev/drydock/internal/rules/accesscredential"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmstate"
	"drydock.dev/drydock/internal/rules/volumeclaim"
	"drydock.dev/drydock/internal/rules/volumemigration"
)

// dataLabel is the volume label of ConfigMaps and the like where the VMI names
// none.
const dataLabel = "cfgdata"

// sysprepLabel is the label of an image with answers for Windows' setup, which looks for the file alone: one of
// answerFiles.
const sysprepLabel = "unattendCD"

var answerFiles = []string{"autounattend.xml", "unattend.xml"}

// Plan is all that is to be there before virt-launcher prepares its images.
type Plan struct {
	Images []Image
	Raws   []Raw
	// Ignition is the guest's Ignition configuration, "" for none.
	Ignition string
	// State is what is kept of the VM; nil for nothing.
	State *State
}

// State is the folder of a VM's state in the claim that it is kept on.
type State struct {
	// Template is the file in the pod that the UEFI variables begin as; empty where none are kept.
	Template string
}

// Image is an ISO image at layout.ISOFile(Volume).
type Image struct {
	Volume string
	Label  string
	// Files are known from the VMI.
	Files []iso.File
	// Copies are files to be read in the pod.
	Copies []Copy
	// Keys are the SSH keys that cloud-init finds in one of the files.
	Keys Keys
	// Folder, if not empty, is a folder in the pod to be copied whole. It may
	// be missing when Optional.
	Folder   string
	Optional bool
	// AnyOf are names of files in it of which one must be there, in any case of letters; empty for none.
	AnyOf []string
}

// Keys are SSH keys that are read from Secrets in the pod, and become a member of a JSON document.
type Keys struct {
	// Document is the path of the document among an Image's Files.
	Document, Member string
	Secrets          []accesscredential.Source
}

// Copy is a file that is read from a Secret's volume.
type Copy struct {
	// Path is where it comes to lie in the image.
	Path string
	// Folder is the volume in the pod, Keys the names that it may have there.
	Folder string
	Keys   []string
	// Of says what was mounted, for the error when there is no such key.
	Of string
}

// Raw is a disk of the guest's own: a block device, or a raw image in a file
// system.
type Raw struct {
	Volume string
	// Device is the block device in the pod; where it exists, there is no file.
	Device string
	// Folder and Name say where the file is.
	Folder, Name string
	// Claim is the PersistentVolumeClaim that gives a missing file its size.
	Claim string
	// Size is that size where no claim gives it, 0 when the file must exist.
	Size int64
	// Exact means that the file has Size whatever room there is left: it is sparse, and a disk is copied to
	// it that may have more holes than a file system keeps free.
	Exact bool
	// ReadOnly leaves everything as it is.
	ReadOnly bool
}

// NewPlan says what the VMI's volumes need. All errors come at once.
func NewPlan(vmi *v1.VirtualMachineInstance) (Plan, error) {
	plan := Plan{Ignition: machine.Ignition(vmi)}
	var errs []error
	if vmstate.Kept(&vmi.Spec) {
		plan.State = &State{}
		if machine.KeepsVariables(&vmi.Spec) {
			plan.State.Template = machine.VariablesTemplate(&vmi.Spec)
		}
	}
	for i := range vmi.Spec.Volumes {
		volume := &vmi.Spec.Volumes[i]
		if machine.Hotpluggable(volume) {
			continue // it is not in the launcher pod
		}
		if image, ok, err := isoOf(vmi, volume); err != nil {
			errs = append(errs, err)
		} else if ok {
			plan.Images = append(plan.Images, image)
		}
		if raw, ok := rawOf(volume); ok {
			if size := volumemigration.SizeOf(vmi, volume.Name); size > 0 && machine.ChangesClaim(vmi, volume) {
				// What is copied here fits exactly, whatever the claim has room for.
				raw.Claim, raw.Size, raw.Exact = "", size, true
			}
			plan.Raws = append(plan.Raws, raw)
		}
	}
	return plan, errors.Join(errs...)
}

func isoOf(vmi *v1.VirtualMachineInstance, v *v1.Volume) (Image, bool, error) {
	switch {
	case v.CloudInitNoCloud != nil:
		image, err := noCloud(vmi, v.Name, v.CloudInitNoCloud)
		return image, true, err
	case v.CloudInitConfigDrive != nil:
		image, err := configDrive(vmi, v.Name, v.CloudInitConfigDrive)
		return image, true, err
	case v.ConfigMap != nil:
		return folderImage(v.Name, v.ConfigMap.VolumeLabel, v.ConfigMap.Optional), true, nil
	case v.Secret != nil:
		return folderImage(v.Name, v.Secret.VolumeLabel, v.Secret.Optional), true, nil
	case v.DownwardAPI != nil:
		return folderImage(v.Name, v.DownwardAPI.VolumeLabel, nil), true, nil
	case v.ServiceAccount != nil:
		return folderImage(v.Name, "", nil), true, nil
	case v.Sysprep != nil:
		image := folderImage(v.Name, sysprepLabel, nil)
		image.AnyOf = answerFiles
		return image, true, nil
	}
	return Image{}, false, nil
}

func folderImage(volume, label string, optional *bool) Image {
	if label == "" {
		label = dataLabel
	}
	return Image{
		Volume: volume, Label: label, Folder: layout.VolumeDir(volume),
		Optional: optional != nil && *optional,
	}
}

func rawOf(v *v1.Volume) (Raw, bool) {
	raw := Raw{
		Volume: v.Name, Device: layout.VolumeDevice(v.Name),
		Folder: layout.VolumeDir(v.Name), Name: layout.DiskImage,
	}
	claim, claimed := volumeclaim.Of(&v.VolumeSource)
	switch {
	case claimed:
		raw.Claim, raw.ReadOnly = claim.Name, claim.ReadOnly
	case v.HostDisk != nil:
		raw.Device, raw.Name = "", path.Base(v.HostDisk.Path)
		if v.HostDisk.Type == v1.HostDiskExistsOrCreate {
			raw.Size = v.HostDisk.Capacity.Value()
		}
	default:
		return Raw{}, false
	}
	return raw, true
}

const (
	// reserved is what a file system keeps for itself when a disk image fills
	// it: the file's own extent tree and directory entry.
	reserved = 128 << 10
	// granularity is what image sizes are cut to.
	granularity = 1 << 20
	// share is how much of a claim, in percent, is left to its file system: CDI's
	// default. A disk that grows with its claim leaves it, so that one that a
	// DataVolume made in a claim of its own choice has the size that was asked for.
	share = 6
)

// ImageSize is the size of the raw image for a disk in a file system with so much
// available, in bytes: what is wanted, or what fits. That may be less by the file
// system's share of a claim of that size, and of the rest by so many percent as are
// tolerated.
func ImageSize(wanted, available int64, tolerated int) (int64, error) {
	if wanted <= 0 {
		return 0, errors.New("the disk's size is not known")
	}
	if wanted <= available-reserved {
		return wanted, nil
	}
	size := (available - reserved) / granularity * granularity
	if least := wanted / 100 * (100 - share) / 100 * int64(100-tolerated); size < max(least, granularity) {
		return 0, fmt.Errorf("the file system has %d bytes left, too few for a disk of %d: %d are the least (pvcTolerateLessSpaceUpToPercent: %d)",
			max(available, 0), wanted, least, tolerated)
	}
	return size, nil
}

// GrownSize is the size that the raw image in a file system claim of that
// capacity may grow to, with so much available to it, what it has included.
func GrownSize(capacity, available int64) int64 {
	wanted := capacity - capacity/100*share
	return max(0, min(wanted, available-reserved)) / granularity * granularity
}
