package validate

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// Spec judges the values in a VMI's spec, which must have its defaults.
func Spec(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, rule := range []func(*v1.VirtualMachineInstanceSpec, *field.Path) field.ErrorList{
		placement, probes, compute, firmwareOf, clock, Storage, network, bootOrder, peripherals,
	} {
		errs = append(errs, rule(spec, path)...)
	}
	return errs
}

// bootOrder judges the order in which disks and interfaces are tried, which is
// one order for both.
func bootOrder(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[uint]bool{}
	judge := func(order *uint, path *field.Path) {
		switch {
		case order == nil:
		case *order == 0:
			errs = append(errs, field.Invalid(path, *order, "must be at least 1"))
		default:
			errs = append(errs, unique(seen, *order, path)...)
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
