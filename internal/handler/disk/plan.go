// Package disk prepares a VMI's disks beyond the volumes of its launcher pod: ISO images of cloud-init data,
// ConfigMaps, Secrets and the like, the raw image in an empty claim or at a hostDisk's path, and their ownership,
// which lets QEMU's unprivileged process open them.
//
// NewPlan decides from the VMI alone. Plan.Apply acts from outside the pod, and never overwrites a file, so it can be
// repeated while the guest runs. virt-launcher, which has no privileges, inspects images and creates overlays.
package disk

import (
	"errors"
	"fmt"
	"path"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/iso"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
	"drydock.dev/drydock/internal/rules/vmi/accesscredential"
)

const dataLabel = "cfgdata"

// sysprepLabel is for answers for Windows Setup, which does not read it.
const sysprepLabel = "unattendCD"

var answerFiles = []string{"autounattend.xml", "unattend.xml"}

// Plan lists the files that must exist before virt-launcher prepares its images.
type Plan struct {
	Images   []Image
	Raws     []Raw
	Ignition string
	// State is nil for a VM without persistent state.
	State *State
}

// State is the folder of a VM's persistent state in its claim.
type State struct {
	// Template is the file in the pod from which the UEFI variables are first copied, or empty.
	Template string
}

// Image is an ISO image at layout.ISOFile(Volume).
type Image struct {
	Volume string
	Label  string
	Files  []iso.File
	Copies []Copy
	Keys   Keys
	// All files of Folder, a folder in the pod, are copied. It may be missing if Optional.
	Folder   string
	Optional bool
	// AnyOf are file names, in any case, one of which Folder must have.
	AnyOf []string
}

// Keys are SSH keys from Secrets for a member of a JSON document.
type Keys struct {
	// Document is the path among an Image's Files.
	Document, Member string
	Secrets          []accesscredential.Source
}

// Copy is a file that is read from a Secret's volume.
type Copy struct {
	Path string
	// Folder is the volume in the pod, Keys the file's possible names.
	Folder string
	Keys   []string
	// Of names the mounted object, for errors.
	Of string
}

// Raw is a disk of the guest: a block device, or a raw image in a file system.
type Raw struct {
	Volume string
	// If the block device Device exists, there is no file.
	Device       string
	Folder, Name string
	Claim        string
	// Size is for a new file without a claim, 0 when the file must exist.
	Size int64
	// Exact means Size whatever space is left: the file is sparse, and the copied disk may have more holes than a
	// file system keeps free.
	Exact    bool
	ReadOnly bool
}

// NewPlan returns the plan for a VMI, or all errors joined.
func NewPlan(vmi *v1.VirtualMachineInstance) (Plan, error) {
	plan := Plan{Ignition: machine.Ignition(vmi)}
	var errs []error
	if stateclaim.Kept(&vmi.Spec) {
		plan.State = &State{}
		if machine.KeepsVariables(&vmi.Spec) {
			plan.State.Template = machine.VariablesTemplate(&vmi.Spec)
		}
	}
	for i := range vmi.Spec.Volumes {
		volume := &vmi.Spec.Volumes[i]
		if machine.Hotpluggable(volume) || machine.IsShare(&vmi.Spec, volume.Name) {
			continue // not in the launcher pod, or no disk
		}
		if image, ok, err := isoOf(vmi, volume); err != nil {
			errs = append(errs, err)
		} else if ok {
			plan.Images = append(plan.Images, image)
		}
		if raw, ok := rawOf(volume); ok {
			if size := volumemigration.SizeOf(vmi, volume.Name); size > 0 && machine.ChangesClaim(vmi, volume) {
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
	// reserved is the file system's need for a disk image that fills it, in bytes: extent tree and directory entry.
	reserved    = 128 << 10
	granularity = 1 << 20 // bytes
	// share is the file system's part of a claim, in percent: CDI's default. A disk that grows with its claim leaves
	// it, so that a disk in a claim that a DataVolume sized keeps the requested size.
	share = 6
)

// ImageSize returns the size of a raw image in a file system: wanted, or the largest that fits, which may be smaller
// by the file system's share of a claim, and by tolerated percent.
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

// GrownSize returns the size to which the raw image in a file system claim may grow. available includes the image.
func GrownSize(capacity, available int64) int64 {
	wanted := capacity - capacity/100*share
	return max(0, min(wanted, available-reserved)) / granularity * granularity
}
