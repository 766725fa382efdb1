package vmispec

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

// maxHostDeviceName leaves room for QEMU's names that are derived from it.
const maxHostDeviceName = 63

var hostDeviceName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// hostDevices validates host devices and GPUs. Which resources are permitted is the administrator's.
func hostDevices(spec *v1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	devices, at := hostdevice.Of(spec), at.Child("domain")
	if len(devices) > machine.MaxHostDevices {
		errs = append(errs, field.Forbidden(at.Child("devices"), fmt.Sprintf("a machine has at most %d hostDevices and gpus together", machine.MaxHostDevices)))
	}
	ids := map[string]bool{}
	for _, d := range devices {
		at := at.Child(d.Path)
		switch {
		case d.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "names the device"))
		case ids[d.ID]:
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		ids[d.ID] = true
		errs = append(errs, fieldcheck.Pattern(d.Name, at.Child("name"), hostDeviceName,
			"must be made of letters, digits, '.', '_' and '-', and begin and end with a letter or a digit")...)
		if len(d.Name) > maxHostDeviceName {
			errs = append(errs, field.TooLong(at.Child("name"), d.Name, maxHostDeviceName))
		}
		if d.Resource == "" {
			errs = append(errs, field.Required(at.Child("deviceName"), "is the resource of a device plugin, such as example.com/gpu"))
		} else if problem := hostdevice.CheckResource(d.Resource); problem != "" {
			errs = append(errs, field.Invalid(at.Child("deviceName"), d.Resource, problem))
		}
	}
	return errs
}
