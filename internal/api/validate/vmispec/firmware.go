package vmispec

import (
	"path"
	"strings"
	"time"
	// A component's image has no time zones of its own.
	_ "time/tzdata"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/rules/machine/firmware"
)

func firmwareOf(spec *v1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	errs := chassis(spec.Domain.Chassis, at.Child("domain", "chassis"))
	f := spec.Domain.Firmware
	if f == nil {
		return errs
	}
	if err := firmware.ValidateFormat(spec, at); err != nil {
		errs = append(errs, err)
	}
	at = at.Child("domain", "firmware")
	errs = append(errs, smbiosText(f.Serial, at.Child("serial"))...)
	if b := f.Bootloader; b != nil {
		if b.BIOS != nil && b.EFI != nil {
			errs = append(errs, field.Forbidden(at.Child("bootloader", "efi"), "can't be set beside bios: a guest has one boot loader"))
		}
		features := spec.Domain.Features
		smm := features != nil && features.SMM != nil && (features.SMM.Enabled == nil || *features.SMM.Enabled)
		if b.EFI != nil && (b.EFI.SecureBoot == nil || *b.EFI.SecureBoot) && !smm {
			errs = append(errs, field.Invalid(at.Child("bootloader", "efi", "secureBoot"), true,
				"has SMM as a requirement; set domain.features.smm.enabled to true, or this to false"))
		}
	}
	return append(errs, kernelBoot(f.KernelBoot, at.Child("kernelBoot"))...)
}

func chassis(c *v1.Chassis, at *field.Path) field.ErrorList {
	if c == nil {
		return nil
	}
	var errs field.ErrorList
	for _, f := range []struct{ name, value string }{
		{"manufacturer", c.Manufacturer}, {"version", c.Version}, {"serial", c.Serial}, {"asset", c.Asset}, {"sku", c.Sku},
	} {
		errs = append(errs, smbiosText(f.value, at.Child(f.name))...)
	}
	return errs
}

// maxSMBIOS bounds, in bytes, a text in SMBIOS.
const maxSMBIOS = 256

// smbiosText validates a text that the guest reads in SMBIOS, and QEMU in its arguments.
func smbiosText(value string, path *field.Path) field.ErrorList {
	if len(value) > maxSMBIOS {
		return field.ErrorList{field.TooLong(path, value, maxSMBIOS)}
	}
	if strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return field.ErrorList{field.Invalid(path, value, "must be made of characters that can be printed, in one line")}
	}
	return nil
}

func kernelBoot(boot *v1.KernelBoot, at *field.Path) field.ErrorList {
	if boot == nil {
		return nil
	}
	if boot.Container == nil {
		if boot.KernelArgs == "" {
			return nil
		}
		return field.ErrorList{field.Required(at.Child("container"), "kernel arguments need a kernel")}
	}
	c, at := boot.Container, at.Child("container")
	var errs field.ErrorList
	if c.Image == "" {
		errs = append(errs, field.Required(at.Child("image"), "names the image with the kernel"))
	}
	if c.KernelPath == "" {
		errs = append(errs, field.Required(at.Child("kernelPath"), "says where in the image the kernel lies"))
	}
	errs = append(errs, absolute(c.KernelPath, at.Child("kernelPath"))...)
	errs = append(errs, absolute(c.InitrdPath, at.Child("initrdPath"))...)
	return append(errs, fieldcheck.PullPolicy(c.ImagePullPolicy, at.Child("imagePullPolicy"))...)
}

// An empty path is valid.
func absolute(value string, at *field.Path) field.ErrorList {
	if value == "" || path.IsAbs(value) && path.Clean(value) == value && value != "/" {
		return nil
	}
	return field.ErrorList{field.Invalid(at, value, "must be an absolute path without . and ..")}
}

func clock(spec *v1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	c, at := spec.Domain.Clock, at.Child("domain", "clock")
	if c == nil {
		return nil
	}
	var errs field.ErrorList
	if c.UTC != nil && c.Timezone != nil {
		errs = append(errs, field.Forbidden(at.Child("timezone"), "can't be set beside utc: a clock has one offset"))
	}
	if c.Timezone != nil {
		if _, err := time.LoadLocation(string(*c.Timezone)); err != nil || *c.Timezone == "" {
			errs = append(errs, field.Invalid(at.Child("timezone"), *c.Timezone, "must be a time zone, such as Europe/Berlin"))
		}
	}
	if c.Timer != nil && c.Timer.RTC != nil {
		rtc, at := c.Timer.RTC, at.Child("timer", "rtc")
		errs = append(errs, fieldcheck.OneOf(rtc.TickPolicy, at.Child("tickPolicy"), v1.RTCTickPolicyDelay, v1.RTCTickPolicyCatchup)...)
		errs = append(errs, fieldcheck.OneOf(rtc.Track, at.Child("track"), v1.TrackGuest, v1.TrackWall)...)
	}
	return errs
}
