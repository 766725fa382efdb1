package vmispec

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
)

func peripherals(spec *v1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	devices, at := &spec.Domain.Devices, at.Child("domain", "devices")
	var errs field.ErrorList
	names := map[string]bool{}
	for i, input := range devices.Inputs {
		at := at.Child("inputs").Index(i)
		errs = append(errs, fieldcheck.OneOf(input.Type, at.Child("type"), v1.InputTypeTablet, v1.InputTypeKeyboard)...)
		errs = append(errs, fieldcheck.OneOf(input.Bus, at.Child("bus"), v1.InputBusUSB, v1.InputBusVirtio)...)
		errs = append(errs, fieldcheck.Unique(names, input.Name, at.Child("name"))...)
		if input.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "names the input"))
		}
	}
	if w := devices.Watchdog; w != nil {
		at := at.Child("watchdog")
		if w.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "names the watchdog"))
		}
		switch {
		case w.I6300ESB != nil:
			errs = append(errs, fieldcheck.OneOf(w.I6300ESB.Action, at.Child("i6300esb", "action"),
				v1.WatchdogActionPoweroff, v1.WatchdogActionReset, v1.WatchdogActionShutdown)...)
		case w.Diag288 == nil:
			errs = append(errs, field.Required(at, "must say which watchdog it is: i6300esb"))
		}
	}
	if s := devices.Sound; s != nil {
		if s.Name == "" {
			errs = append(errs, field.Required(at.Child("sound", "name"), "names the sound card"))
		}
		errs = append(errs, fieldcheck.OneOf(s.Model, at.Child("sound", "model"), "ich9", "ac97")...)
	}
	if v := devices.Video; v != nil {
		errs = append(errs, fieldcheck.OneOf(v.Type, at.Child("video", "type"), "vga", "virtio", "bochs", "cirrus", "ramfb")...)
		if attach := devices.AutoattachGraphicsDevice; attach != nil && !*attach {
			errs = append(errs, field.Forbidden(at.Child("video"), "autoattachGraphicsDevice is false: there is no screen"))
		}
	}
	for i, panicDevice := range devices.PanicDevices {
		if m := panicDevice.Model; m != nil {
			errs = append(errs, fieldcheck.OneOf(*m, at.Child("panicDevices").Index(i).Child("model"), v1.Isa, v1.Hyperv, v1.Pvpanic)...)
		}
	}
	return errs
}
