package instancetype

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
)

// architecture is the default of a guest.
const architecture = "amd64"

// Clients of KubeVirt match unmet, and the insufficient resource after it.
const unmet = "failure checking preference requirements: "

func requirements(spec *v1.VirtualMachineInstanceSpec, used Used) field.ErrorList {
	needs := used.Preference.Preference.Requirements
	if needs == nil {
		return nil
	}
	from, cpuPath, memoryPath := "the VM", vmiPath.Child("domain", "cpu"), vmiPath.Child("domain", "memory", "guest")
	if used.Type != nil {
		from, cpuPath, memoryPath = used.Type.String(), typePath, typePath
	}
	var errs field.ErrorList
	refuse := func(path *field.Path, resource, amount string, wants any) {
		errs = append(errs, field.Forbidden(path, fmt.Sprintf("%sinsufficient %s resources: %s has %s, and %s requires at least %v",
			unmet, resource, from, amount, used.Preference, wants)))
	}
	if needs.CPU != nil {
		if has := machine.VCPUs(machine.Topology(spec)); has < int(needs.CPU.Guest) {
			refuse(cpuPath, "CPU", fmt.Sprintf("%d vCPUs", has), needs.CPU.Guest)
		}
	}
	if needs.Memory != nil {
		if has := machine.GuestMemory(spec); has < needs.Memory.Guest.Value() {
			refuse(memoryPath, "Memory", resource.NewQuantity(has, resource.BinarySI).String()+" of memory", needs.Memory.Guest.String())
		}
	}
	if wants := value(needs.Architecture); wants != "" {
		has := spec.Architecture
		set(&has, architecture)
		if has != wants {
			errs = append(errs, field.Forbidden(preferencePath, fmt.Sprintf("%s%s requires the architecture %s, and the VM is of %s", unmet, used.Preference, wants, has)))
		}
	}
	return errs
}
