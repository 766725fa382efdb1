package machine

import (
	"fmt"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine/machinetype"
)

const (
	defaultMachineType = "q35"

	// TranslationCacheMi limits QEMU's cache of translated code without KVM, in mebibytes: it could take a gibibyte,
	// which no memory request covers. A Linux guest's boot fills 61; a smaller cache doubles its time.
	TranslationCacheMi = 96
)

func (b *builder) machineOption(name, value string) {
	b.machineOptions = append(b.machineOptions, name+"="+value)
}

// machineType returns the type in the command line.
func (b *builder) machineType() string {
	// A target is the machine that the source is, whatever this QEMU's newest one is.
	if m := b.vmi.Status.Machine; b.in.Incoming != "" && m != nil && machinetype.Known(m.Type) {
		return m.Type
	}
	if m := b.spec.Machine; m != nil && m.Type != "" {
		return m.Type
	}
	return or(b.in.MachineType, defaultMachineType)
}

// emulationThreads returns how QEMU's emulation runs the guest's CPUs. A guest that has, or may get, several CPUs needs one thread for
// all: when one of them moves a device's registers, another one that is running may reach a wrong device by its cached
// place, or end QEMU (decision 665).
func (b *builder) emulationThreads() string {
	if b.mostVCPUs() > 1 {
		return "single"
	}
	return "multi"
}

// platform comes after all parts that add machine options.
func (b *builder) platform() {
	kind := b.machineType()
	if !machinetype.Known(kind) {
		b.refuse("machine.type", "QEMU has no q35 machine %q", kind)
	}
	text := strings.Join(append([]string{
		"type=" + kind, "memory-backend=" + ramID, "usb=off", "vmport=off", "dump-guest-core=off",
	}, b.machineOptions...), ",")
	accel := fmt.Sprintf("tcg,thread=%s,tb-size=%d", b.emulationThreads(), TranslationCacheMi)
	if b.in.KVM {
		accel = "kvm"
	}
	b.options = append([]option{{"machine", text}, {"accel", accel}}, b.options...)
}

func (b *builder) features() {
	// Some guests don't boot if PCI devices may be above 4 GiB.
	if b.vmi.Annotations[v1.DisablePCIHole64] == "true" {
		b.option("global", "driver=q35-pcihost,property=pci-hole64-size,value=0")
	}
	f := b.spec.Features
	if f == nil {
		return
	}
	if isFalse(f.ACPI.Enabled) {
		b.machineOption("acpi", "off")
	}
	if f.SMM != nil {
		b.machineOption("smm", onOff(isOn(f.SMM)))
	}
}

// KVM's properties only speed a guest up or hide the hypervisor.
func (b *builder) platformFlags() []string {
	var flags []string
	f := b.spec.Features
	if f != nil && f.APIC != nil && isFalse(f.APIC.Enabled) {
		flags = append(flags, "apic=off")
	}
	if !b.in.KVM {
		return flags
	}
	if f != nil {
		flags = append(flags, kvmFlags(f)...)
		if f.Hyperv != nil {
			flags = append(flags, hypervFlags(f.Hyperv)...)
		}
	}
	if c := b.spec.Clock; c != nil && c.Timer != nil {
		if t := c.Timer.KVM; t != nil {
			flags = append(flags, "kvmclock="+onOff(!isFalse(t.Enabled)))
		}
		if t := c.Timer.Hyperv; t != nil {
			flags = append(flags, "hv-time="+onOff(!isFalse(t.Enabled)))
		}
	}
	for _, d := range b.spec.Devices.PanicDevices {
		if d.Model != nil && *d.Model == v1.Hyperv {
			flags = append(flags, "hv-crash=on")
		}
	}
	return flags
}

func kvmFlags(f *v1.Features) []string {
	var flags []string
	if f.KVM != nil && f.KVM.Hidden {
		flags = append(flags, "kvm=off")
	}
	if f.APIC != nil && f.APIC.EndOfInterrupt {
		flags = append(flags, "kvm-pv-eoi=on")
	}
	if f.Pvspinlock != nil {
		flags = append(flags, "kvm-pv-unhalt="+onOff(isOn(f.Pvspinlock)))
	}
	if p := f.HypervPassthrough; p != nil && !isFalse(p.Enabled) {
		flags = append(flags, "hv-passthrough=on")
	}
	return flags
}

// defaultSpinlockRetries is the number of attempts before Windows yields.
const defaultSpinlockRetries = 4096

func hypervFlags(h *v1.FeatureHyperv) []string {
	var flags []string
	add := func(name string, f *v1.FeatureState) {
		if f != nil {
			flags = append(flags, name+"="+onOff(isOn(f)))
		}
	}
	add("hv-relaxed", h.Relaxed)
	add("hv-vapic", h.VAPIC)
	if s := h.Spinlocks; s != nil && isOn(&s.FeatureState) {
		retries := uint32(defaultSpinlockRetries)
		if s.Retries != nil {
			retries = *s.Retries
		}
		flags = append(flags, fmt.Sprintf("hv-spinlocks=%#x", retries))
	}
	add("hv-vpindex", h.VPIndex)
	add("hv-runtime", h.Runtime)
	add("hv-synic", h.SyNIC)
	if t := h.SyNICTimer; t != nil {
		add("hv-stimer", &t.FeatureState)
		if isOn(&t.FeatureState) {
			add("hv-stimer-direct", t.Direct)
		}
	}
	add("hv-reset", h.Reset)
	if v := h.VendorID; v != nil && isOn(&v.FeatureState) {
		flags = append(flags, "hv-vendor-id="+escape(v.VendorID))
	}
	add("hv-frequencies", h.Frequencies)
	add("hv-reenlightenment", h.Reenlightenment)
	if t := h.TLBFlush; t != nil {
		add("hv-tlbflush", &t.FeatureState)
		if isOn(&t.FeatureState) {
			add("hv-tlbflush-direct", t.Direct)
			add("hv-tlbflush-ext", t.Extended)
		}
	}
	add("hv-ipi", h.IPI)
	add("hv-evmcs", h.EVMCS)
	return flags
}
