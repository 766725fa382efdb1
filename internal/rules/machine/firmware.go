package machine

import (
	"path"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine/machinetype"
)

// The UEFI firmware in the launcher's image, without and with Secure Boot, and the templates of its variables: empty, and
// with Microsoft's keys.
const (
	ovmfCode       = layout.UEFICode
	ovmfVars       = layout.UEFIVars
	ovmfSecureCode = "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd"
	ovmfSecureVars = "/usr/share/OVMF/OVMF_VARS_4M.ms.fd"
)

// nvramImage is the name of the UEFI variables among the images. Volume names have no slash.
const nvramImage = "firmware/nvram"

// SMBIOS defaults, by which guests and their tools recognize a KubeVirt machine.
const (
	defaultManufacturer = "KubeVirt"
	defaultProduct      = "None"
	defaultFamily       = "KubeVirt"
)

func efi(spec *v1.VirtualMachineInstanceSpec) *v1.EFI {
	if f := spec.Domain.Firmware; f != nil && f.Bootloader != nil {
		return f.Bootloader.EFI
	}
	return nil
}

func secureBoot(e *v1.EFI) bool { return e.SecureBoot == nil || *e.SecureBoot }

// KeepsVariables reports whether UEFI variables outlive the guest.
func KeepsVariables(spec *v1.VirtualMachineInstanceSpec) bool {
	e := efi(spec)
	return e != nil && isTrue(e.Persistent)
}

// VariablesTemplate returns the file with the initial UEFI variables, "" for a BIOS guest.
func VariablesTemplate(spec *v1.VirtualMachineInstanceSpec) string {
	e := efi(spec)
	switch {
	case e == nil:
		return ""
	case secureBoot(e):
		return ovmfSecureVars
	}
	return ovmfVars
}

// nvram returns the VM's own variables, or an overlay on the template: guests don't share variables.
func nvram(vmi *v1.VirtualMachineInstance) (launch.Image, bool) {
	template := VariablesTemplate(&vmi.Spec)
	if template == "" {
		return launch.Image{}, false
	}
	if KeepsVariables(&vmi.Spec) {
		return launch.Image{Name: nvramImage, Root: layout.StateDir, Source: layout.KeptNVRAMFile(), Format: formatRaw}, true
	}
	return launch.Image{Name: nvramImage, Source: template, Format: formatRaw, Overlay: layout.NVRAMFile()}, true
}

func (b *builder) firmware() {
	b.smbios()
	b.option("boot", "strict=on")
	if e := efi(&b.vmi.Spec); e != nil {
		b.uefi(e)
	} else if f := b.spec.Firmware; f != nil && f.Bootloader != nil && f.Bootloader.BIOS != nil && isTrue(f.Bootloader.BIOS.UseSerial) {
		// SeaBIOS uses the serial port if there is no graphics.
		b.machineOption("graphics", "off")
	}
	if Ignition(b.vmi) != "" {
		b.option("fw_cfg", "name=opt/com.coreos/config,file="+layout.IgnitionFile())
	}
	b.kernelBoot()
}

// Ignition returns the configuration of a CoreOS guest, "" for none. It is passed in a file: a process's arguments are
// public and limited in length.
func Ignition(vmi *v1.VirtualMachineInstance) string { return vmi.Annotations[v1.IgnitionAnnotation] }

func (b *builder) uefi(e *v1.EFI) {
	image, ok := b.in.Images[nvramImage]
	if !ok {
		b.refuse("firmware.bootloader.efi", "the UEFI variables have not been prepared")
		return
	}
	code := ovmfCode
	f := b.spec.Features
	smm := f != nil && f.SMM != nil && isOn(f.SMM)
	if secureBoot(e) && !smm {
		b.refuse("firmware.bootloader.efi.secureBoot", "Secure Boot needs spec.domain.features.smm.enabled to be true")
	}
	// Without SecureBoot, a guest may enroll keys of its owner. The other firmware knows no keys. Guests of older types may
	// come from a release whose firmware took keys without SMM, and would be refused all writes of their variables here.
	if secureBoot(e) || smm && !machinetype.InEveryRelease(b.machineType()) {
		code = ovmfSecureCode
		b.option("global", "driver=cfi.pflash01,property=secure,value=on")
		b.option("global", "driver=ICH9-LPC,property=disable_s3,value=1")
	}
	b.file(fileNode{name: "uefi-code-file", path: code, readOnly: true})
	b.blockdev(format(formatRaw, "uefi-code", "uefi-code-file", true))
	if image.Overlay == "" {
		// The firmware never flushes, so persistent variables bypass the page cache if the storage supports it.
		b.file(fileNode{name: "uefi-vars-file", path: image.Source, caching: caching{direct: image.DirectIO}})
		b.blockdev(format(formatRaw, "uefi-vars", "uefi-vars-file", false))
	} else {
		b.file(fileNode{name: "uefi-vars-base-file", path: image.Source, readOnly: true})
		b.blockdev(format(formatRaw, "uefi-vars-base", "uefi-vars-base-file", true))
		b.file(fileNode{name: "uefi-vars-file", path: image.Overlay})
		top := format(formatQCOW2, "uefi-vars", "uefi-vars-file", false)
		top["backing"] = "uefi-vars-base"
		b.blockdev(top)
	}
	b.machineOption("pflash0", "uefi-code")
	b.machineOption("pflash1", "uefi-vars")
}

func (b *builder) smbios() {
	f := b.spec.Firmware
	if f != nil && f.UUID != "" {
		b.option("uuid", string(f.UUID))
	}
	system := smbiosTable{"type=1"}
	cluster := b.in.SMBIOS
	if cluster == nil {
		cluster = &v1.SMBiosConfiguration{}
	}
	system.add("manufacturer", or(cluster.Manufacturer, defaultManufacturer))
	system.add("product", or(cluster.Product, defaultProduct))
	system.add("version", cluster.Version)
	if f != nil {
		system.add("serial", f.Serial)
	}
	system.add("sku", cluster.Sku)
	system.add("family", or(cluster.Family, defaultFamily))
	b.option("smbios", system.text())
	if c := b.spec.Chassis; c != nil {
		chassis := smbiosTable{"type=3"}
		chassis.add("manufacturer", c.Manufacturer)
		chassis.add("version", c.Version)
		chassis.add("serial", c.Serial)
		chassis.add("asset", c.Asset)
		chassis.add("sku", c.Sku)
		b.option("smbios", chassis.text())
	}
}

func (b *builder) kernelBoot() {
	f := b.spec.Firmware
	if f == nil || f.KernelBoot == nil {
		return
	}
	c := f.KernelBoot.Container
	if c == nil || c.KernelPath == "" {
		if f.KernelBoot.KernelArgs != "" || c != nil {
			b.refuse("firmware.kernelBoot.container.kernelPath", "a kernel is needed to boot from")
		}
		return
	}
	b.option("kernel", inKernelBoot(c.KernelPath))
	if c.InitrdPath != "" {
		b.option("initrd", inKernelBoot(c.InitrdPath))
	}
	if f.KernelBoot.KernelArgs != "" {
		b.option("append", f.KernelBoot.KernelArgs)
	}
}

func inKernelBoot(p string) string { return path.Join(layout.KernelBootDir, path.Join("/", p)) }
