// Package vmispec validates the specs of VMIs, and of the templates of VMs and replica sets: each field's value, and that
// the fields suit each other.
//
// It must depend neither on an administrator's settings nor on an earlier version of the spec, which package validate
// judges. Package supported decides whether a field is implemented.
package vmispec

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/defaults"
	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/object/listbounds"
	"drydock.dev/drydock/internal/rules/object/supported"
)

// Validate validates a spec, which must have its defaults.
func Validate(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	errs := lists(spec, path)
	rules := []func(*v1.VirtualMachineInstanceSpec, *field.Path) field.ErrorList{placement, probes, compute, firmwareOf, clock}
	if len(errs) == 0 {
		// These compare the entries of lists with each other.
		rules = append(rules, ValidateStorage, network, bootOrder, peripherals, hostDevices, accessCredentials)
	}
	for _, rule := range rules {
		errs = append(errs, rule(spec, path)...)
	}
	return errs
}

// lists bounds the numbers of devices and volumes. Admission did not bound those that were added later or by an
// instance type.
func lists(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	devices, at := &spec.Domain.Devices, path.Child("domain", "devices")
	for _, list := range []struct {
		path  *field.Path
		count int
	}{
		{path.Child("volumes"), len(spec.Volumes)}, {path.Child("networks"), len(spec.Networks)},
		{at.Child("disks"), len(devices.Disks)}, {at.Child("interfaces"), len(devices.Interfaces)},
		{at.Child("filesystems"), len(devices.Filesystems)},
		{at.Child("gpus"), len(devices.GPUs)}, {at.Child("hostDevices"), len(devices.HostDevices)},
	} {
		if list.count > listbounds.Devices {
			errs = append(errs, field.TooMany(list.path, list.count, listbounds.Devices))
		}
	}
	return errs
}

// ValidateAddition returns the errors in a VMI's spec that were not there before an addition. Admission does not validate
// virt-api's writes again, and an error would only appear at the next start.
func ValidateAddition(after, before *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	known := map[string]bool{}
	for _, err := range complete(before, path) {
		known[err.Error()] = true
	}
	return slices.DeleteFunc(complete(after, path), func(err *field.Error) bool { return known[err.Error()] })
}

// complete validates a spec with the defaults of a cluster without settings, which are the same before and after.
func complete(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	spec = spec.DeepCopy()
	defaults.Spec(spec, clusterconfig.FromKubeVirt(nil))
	return append(supported.VMISpec(spec, path), Validate(spec, path)...)
}

// Disks and interfaces share the boot order.
func bootOrder(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[uint]bool{}
	judge := func(order *uint, path *field.Path) {
		switch {
		case order == nil:
		case *order == 0:
			errs = append(errs, field.Invalid(path, *order, "must be at least 1"))
		default:
			errs = append(errs, fieldcheck.Unique(seen, *order, path)...)
		}
	}
	devices := path.Child("domain", "devices")
	for i := range spec.Domain.Devices.Disks {
		judge(spec.Domain.Devices.Disks[i].BootOrder, devices.Child("disks").Index(i).Child("bootOrder"))
	}
	for i := range spec.Domain.Devices.Interfaces {
		judge(spec.Domain.Devices.Interfaces[i].BootOrder, devices.Child("interfaces").Index(i).Child("bootOrder"))
	}
	return errs
}
