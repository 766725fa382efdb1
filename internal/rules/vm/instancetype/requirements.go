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

// Clients of KubeVirt match unmet, and the sentence about the insufficient resource after it.
const unmet = "failure checking preference requirements: "

func requirements(spec *v1.VirtualMachineInstanceSpec, used Used) field.ErrorList {
	needs := used.Preference.Preference.Requirements
	if needs == nil {
		return nil
	}
	provider, remedy := "VirtualMachine", "give the VM more, or select another than "
	cpuPath, memoryPath := vmiPath.Child("domain", "cpu"), vmiPath.Child("domain", "memory", "guest")
	if used.Type != nil {
		provider, remedy = "instance type", "select another than "+used.Type.String()+", or than "
		cpuPath, memoryPath = typePath, typePath
	}
	var errs field.ErrorList
	refuse := func(path *field.Path, resource, amount, wants string) {
		errs = append(errs, field.Forbidden(path, fmt.Sprintf("%sinsufficient %s resources of %s provided by %s, preference requires %s; %s%s",
			unmet, resource, amount, provider, wants, remedy, used.Preference)))
	}
	if needs.CPU != nil {
		if has := machine.VCPUs(machine.Topology(spec)); has < int(needs.CPU.Guest) {
			refuse(cpuPath, "CPU", fmt.Sprintf("%d vCPU", has), fmt.Sprintf("%d vCPU", needs.CPU.Guest))
		}
	}
	if needs.Memory != nil {
		if has := machine.GuestMemory(spec); has < needs.Memory.Guest.Value() {
			refuse(memoryPath, "Memory", resource.NewQuantity(has, resource.BinarySI).String(), needs.Memory.Guest.String())
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
