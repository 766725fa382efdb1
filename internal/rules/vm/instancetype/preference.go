package instancetype

import (
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
)

func applyPreference(vm *v1.VirtualMachine, p *instancetypev1.VirtualMachinePreferenceSpec, binding string) {
	template := vm.Spec.Template
	spec := &template.Spec
	if p.CPU != nil {
		for _, feature := range p.CPU.PreferredCPUFeatures {
			cpu := need(&spec.Domain.CPU)
			if !slices.ContainsFunc(cpu.Features, func(f v1.CPUFeature) bool { return f.Name == feature.Name }) {
				cpu.Features = append(cpu.Features, feature)
			}
		}
	}
	devices(spec, p.Devices, binding)
	features(&spec.Domain, p.Features)
	bootloader(&spec.Domain, p.Firmware)
	if wants := p.Clock; wants != nil && *wants != (instancetypev1.ClockPreferences{}) {
		clock := need(&spec.Domain.Clock)
		set(&clock.ClockOffset, value(wants.PreferredClockOffset))
		set(&clock.Timer, wants.PreferredTimer)
	}
	preferMachine(&spec.Domain, p)
	if p.Volumes != nil && p.Volumes.PreferredStorageClassName != "" {
		storageClass(vm, p.Volumes.PreferredStorageClassName)
	}
	set(&spec.Subdomain, value(p.PreferredSubdomain))
	set(&spec.TerminationGracePeriodSeconds, p.PreferredTerminationGracePeriodSeconds)
	set(&spec.Architecture, value(p.PreferredArchitecture))
	set(&spec.Domain.LaunchSecurity, p.PreferredLaunchSecurity)
	for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
		if _, there := template.ObjectMeta.Annotations[key]; !there {
			annotate(&template.ObjectMeta, key, p.Annotations[key])
		}
	}
}

// PreferMachine sets the preferred machine type in a VM without one.
func PreferMachine(vm *v1.VirtualMachine, preference *Source) {
	if vm.Spec.Template != nil {
		preferMachine(&vm.Spec.Template.Spec.Domain, preference.Preference)
	}
}

func preferMachine(domain *v1.DomainSpec, p *instancetypev1.VirtualMachinePreferenceSpec) {
	if p.Machine != nil && p.Machine.PreferredMachineType != "" {
		set(&need(&domain.Machine).Type, p.Machine.PreferredMachineType)
	}
}

func annotate(meta *metav1.ObjectMeta, key, text string) {
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[key] = text
}

func features(domain *v1.DomainSpec, p *instancetypev1.FeaturePreferences) {
	if p == nil || *p == (instancetypev1.FeaturePreferences{}) {
		return
	}
	f := need(&domain.Features)
	set(&f.ACPI, value(p.PreferredAcpi))
	set(&f.APIC, p.PreferredApic)
	set(&f.KVM, p.PreferredKvm)
	set(&f.Pvspinlock, p.PreferredPvspinlock)
	set(&f.SMM, p.PreferredSmm)
	// HypervPassthrough excludes named features.
	if p.PreferredHyperv != nil && f.HypervPassthrough == nil {
		setMembers(need(&f.Hyperv), p.PreferredHyperv)
	}
}

func setMembers[T any](to, from *T) {
	into, of := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for i := range into.NumField() {
		if into.Field(i).IsZero() {
			into.Field(i).Set(of.Field(i))
		}
	}
}

// bootloader sets the firmware of a VM without one.
func bootloader(domain *v1.DomainSpec, p *instancetypev1.FirmwarePreferences) {
	if p == nil || *p == (instancetypev1.FirmwarePreferences{}) {
		return
	}
	b := need(&need(&domain.Firmware).Bootloader)
	efi := p.PreferredEfi
	if efi == nil && value(p.DeprecatedPreferredUseEfi) {
		efi = &v1.EFI{}
	}
	switch {
	case b.BIOS != nil || b.EFI != nil:
	case value(p.PreferredUseBios):
		b.BIOS = &v1.BIOS{}
	case efi != nil:
		b.EFI = efi
	}
	if b.BIOS != nil {
		set(&b.BIOS.UseSerial, p.PreferredUseBiosSerial)
	}
	if b.EFI != nil {
		set(&b.EFI.SecureBoot, p.DeprecatedPreferredUseSecureBoot)
	}
	if b.BIOS == nil && b.EFI == nil {
		domain.Firmware.Bootloader = nil
	}
}

// storageClass sets the class of the VM's DataVolumes without one.
func storageClass(vm *v1.VirtualMachine, class string) {
	for i := range vm.Spec.DataVolumeTemplates {
		spec := &vm.Spec.DataVolumeTemplates[i].Spec
		if spec.PVC != nil && spec.PVC.StorageClassName == nil {
			spec.PVC.StorageClassName = &class
		}
		if spec.Storage != nil && spec.Storage.StorageClassName == nil {
			spec.Storage.StorageClassName = &class
		}
	}
}
