package validate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/api/defaults"
	"drydock.dev/drydock/internal/api/validate/vmispec"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/machine/machinetype"
	"drydock.dev/drydock/internal/rules/object/supported"
	"drydock.dev/drydock/internal/rules/pod/selinux"
	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

// VMWarnings warns a VM's owner of fields without the effect that they suggest, and of deprecated ones. old is nil on
// creation. Only a changed spec and new annotations get warnings.
func VMWarnings(vm, old *v1.VirtualMachine, settings clusterconfig.Settings) []string {
	all := supported.VMAnnotationWarnings(changed(vm.Annotations, old), annotations)
	if old != nil && equality.Semantic.DeepEqual(vm.Spec, old.Spec) {
		return all
	}
	spec := field.NewPath("spec")
	if vm.Spec.Running != nil {
		instead := v1.RunStrategyHalted
		if *vm.Spec.Running {
			instead = v1.RunStrategyAlways
		}
		all = append(all, fmt.Sprintf("spec.running is deprecated: set spec.runStrategy to %s instead", instead))
	}
	all = append(all, supported.VMSpecWarnings(&vm.Spec, spec)...)
	if !settings.CDI { // Else the annotations are for CDI.
		for i := range vm.Spec.DataVolumeTemplates {
			at := spec.Child("dataVolumeTemplates").Index(i).Child("metadata", "annotations")
			all = append(all, supported.DataVolumeAnnotationWarnings(vm.Spec.DataVolumeTemplates[i].Annotations, at)...)
		}
	}
	if vm.Spec.Instancetype == nil {
		all = append(all, memoryWarning(vm.Spec.Template, spec.Child("template", "spec"))...)
	}
	return append(all, templateWarnings(vm.Spec.Template, spec.Child("template", "spec"), settings)...)
}

// ExpandedVMWarnings returns the warnings about the values that a VM gets from its instance type.
func ExpandedVMWarnings(vm, expanded *v1.VirtualMachine, settings clusterconfig.Settings) []string {
	kind, template := vm.Spec.Instancetype, expanded.Spec.Template
	if kind == nil || template == nil {
		return nil
	}
	var all []string
	if own := vm.Spec.Template; own == nil || !hostdevice.Any(&own.Spec) {
		all = hostDeviceWarnings(&template.Spec, field.NewPath("spec", "template", "spec"), settings)
	}
	if machine.GuestMemory(&template.Spec) > 0 {
		return all
	}
	return append(all, fmt.Sprintf("spec.instancetype: the memory of the instance type %s is 0: no guest can start without memory", kind.Name))
}

// hostDeviceWarnings is about devices that are not permitted yet. KubeVirt takes such a VM, too, and lets it wait.
func hostDeviceWarnings(spec *v1.VirtualMachineInstanceSpec, path *field.Path, settings clusterconfig.Settings) []string {
	var all []string
	for _, d := range hostdevice.Of(spec) {
		if refusal := settings.HostDevices.Refusal(d); refusal != "" {
			all = append(all, fmt.Sprintf("%s: %s; the VM waits until it does", path.Child("domain").Child(d.Path).Child("deviceName"), refusal))
		}
	}
	return all
}

// VMIWarnings returns the warnings about a VMI, as it was sent.
func VMIWarnings(vmi, old *v1.VirtualMachineInstance, settings clusterconfig.Settings) []string {
	all := supported.VMIAnnotationWarnings(changed(vmi.Annotations, old), annotations)
	if old != nil {
		return all // A VMI's spec can't change.
	}
	spec := field.NewPath("spec")
	all = append(all, supported.VMISpecWarnings(&vmi.Spec, spec)...)
	return append(all, guestWarnings(&vmi.Spec, spec, settings)...)
}

// MigrationWarnings returns the warnings about a migration.
func MigrationWarnings(m, old *v1.VirtualMachineInstanceMigration) []string {
	return supported.MigrationAnnotationWarnings(changed(m.Annotations, old), annotations)
}

// ReplicaSetWarnings returns the warnings about a replica set.
func ReplicaSetWarnings(rs, old *v1.VirtualMachineInstanceReplicaSet, settings clusterconfig.Settings) []string {
	if old != nil && equality.Semantic.DeepEqual(rs.Spec, old.Spec) {
		return nil
	}
	spec := field.NewPath("spec")
	all := append(supported.ReplicaSetSpecWarnings(&rs.Spec, spec), memoryWarning(rs.Spec.Template, spec.Child("template", "spec"))...)
	return append(all, templateWarnings(rs.Spec.Template, spec.Child("template", "spec"), settings)...)
}

// A template without memory is stored, but its VMIs are refused.
func memoryWarning(template *v1.VirtualMachineInstanceTemplateSpec, path *field.Path) []string {
	if template == nil || machine.GuestMemory(&template.Spec) > 0 {
		return nil
	}
	domain := path.Child("domain")
	return []string{fmt.Sprintf("%s: %s: no guest can start without memory", domain.Child("memory", "guest"), noMemory(domain))}
}

func noMemory(domain *field.Path) string {
	return "no memory requested; set this or " + domain.Child("resources", "requests", "memory").String()
}

func templateWarnings(template *v1.VirtualMachineInstanceTemplateSpec, path *field.Path, settings clusterconfig.Settings) []string {
	if template == nil {
		return nil
	}
	return guestWarnings(&template.Spec, path, settings)
}

// DataVolumeWarnings returns the warnings about a DataVolume.
func DataVolumeWarnings(dv, old *cdiv1.DataVolume) []string {
	all := supported.DataVolumeAnnotationWarnings(changed(dv.Annotations, old), annotations)
	if old != nil && equality.Semantic.DeepEqual(dv.Spec, old.Spec) {
		return all
	}
	return append(all, supported.DataVolumeSpecWarnings(&dv.Spec, field.NewPath("spec"))...)
}

// CDIWarnings returns the warnings about a CDI object.
func CDIWarnings(object, old *cdiv1.CDI) []string {
	if old != nil && equality.Semantic.DeepEqual(object.Spec, old.Spec) {
		return nil
	}
	return supported.CDISpecWarnings(&object.Spec, field.NewPath("spec"))
}

// KubeVirtWarnings returns the warnings about the configuration.
func KubeVirtWarnings(kv, old *v1.KubeVirt) []string {
	all := supported.KubeVirtAnnotationWarnings(changed(kv.Annotations, old), annotations)
	if old != nil && equality.Semantic.DeepEqual(kv.Spec, old.Spec) {
		return all
	}
	spec := field.NewPath("spec")
	all = append(all, supported.KubeVirtSpecWarnings(&kv.Spec, spec)...)
	if t := kv.Spec.Configuration.SELinuxLauncherType; t != "" && !selinux.ForContainers(t) {
		all = append(all, fmt.Sprintf("spec.configuration.selinuxLauncherType: no VM starts with the type %s before it is entered into the "+
			"ValidatingAdmissionPolicy virt-controller-pods", t))
	}
	return append(all, customizationWarnings(&kv.Spec.CustomizeComponents, spec.Child("customizeComponents"))...)
}

func guestWarnings(spec *v1.VirtualMachineInstanceSpec, path *field.Path, settings clusterconfig.Settings) []string {
	var all []string
	if m := spec.Domain.Machine; m != nil && machinetype.Foreign(m.Type) {
		if kind, err := settings.MachineTypes.Resolve(m.Type); err == nil {
			all = append(all, fmt.Sprintf("%s: QEMU has no machine type %s; the guest runs as %s, which an administrator can change by the annotation %s of the KubeVirt object",
				path.Child("domain", "machine", "type"), m.Type, kind, clusterconfig.MachineTypesAnnotation))
		}
	}
	all = append(all, hostDeviceWarnings(spec, path, settings)...)
	complete := spec.DeepCopy()
	defaults.Spec(complete, settings)
	return append(all, vmispec.SerialWarnings(complete, path)...)
}
