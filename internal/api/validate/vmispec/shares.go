package vmispec

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// shares validates the folders that the guest shares with its pod.
func shares(spec *v1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	list := spec.Domain.Devices.Filesystems
	if len(list) > machine.MaxShares {
		errs = append(errs, field.TooMany(at, len(list), machine.MaxShares))
	}
	names := map[string]bool{}
	for i := range list {
		f, at := &list[i], at.Index(i)
		errs = append(errs, fieldcheck.Unique(names, f.Name, at.Child("name"))...)
		volume := volumeclaim.Named(spec.Volumes, f.Name)
		switch {
		case f.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "is the name of the folder's volume"))
		case volume == nil:
			errs = append(errs, field.Invalid(at.Child("name"), f.Name, "must be the name of a volume in spec.volumes"))
		case len(f.Name) > machine.MaxShareName:
			errs = append(errs, field.TooLong(at.Child("name"), f.Name, machine.MaxShareName))
		case slices.ContainsFunc(spec.Domain.Devices.Disks, func(d v1.Disk) bool { return d.Name == f.Name }):
			errs = append(errs, field.Forbidden(at.Child("name"), fmt.Sprintf("volume %q is a disk already: a volume is a disk or a file system", f.Name)))
		case machine.Hotpluggable(volume):
			errs = append(errs, field.Forbidden(at.Child("name"), fmt.Sprintf("volume %q is hotpluggable: a file system is there from the guest's start", f.Name)))
		case !hasFolder(&volume.VolumeSource):
			errs = append(errs, field.Forbidden(at.Child("name"), fmt.Sprintf("volume %q has no folder to share: "+
				"it must be a persistentVolumeClaim, a dataVolume, a configMap, a secret, a serviceAccount or a downwardAPI", f.Name)))
		}
		if f.Virtiofs == nil {
			errs = append(errs, field.Required(at.Child("virtiofs"), "is the only way to share a folder"))
		}
	}
	return errs
}

func hasFolder(s *v1.VolumeSource) bool {
	return s.PersistentVolumeClaim != nil || s.DataVolume != nil || s.ConfigMap != nil || s.Secret != nil ||
		s.ServiceAccount != nil || s.DownwardAPI != nil
}
