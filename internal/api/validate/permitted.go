package validate

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine/machinetype"
)

// permitted validates fields that an administrator has to allow, or register, in the KubeVirt object. The spec must
// have its defaults.
func permitted(spec *v1.VirtualMachineInstanceSpec, path *field.Path, settings clusterconfig.Settings) field.ErrorList {
	errs := gated(spec, path, settings)
	interfaces := path.Child("domain", "devices", "interfaces")
	for i := range spec.Domain.Devices.Interfaces {
		if _, err := settings.NetworkBindings.Of(&spec.Domain.Devices.Interfaces[i]); err != nil {
			errs = append(errs, field.Forbidden(interfaces.Index(i).Child("binding", "name"), err.Error()))
		}
	}
	errs = append(errs, bridges(spec, interfaces, settings)...)
	if spec.Domain.Machine == nil {
		return errs
	}
	// The default machine type and the substitutes for other types are always allowed.
	name := spec.Domain.Machine.Type
	if name == "" || name == settings.MachineType || machinetype.Allowed(settings.AllowedMachineTypes, name) || settings.MachineTypes.Gives(name) {
		return errs
	}
	return append(errs, field.Invalid(path.Child("domain", "machine", "type"), name,
		fmt.Sprintf("the KubeVirt object's emulatedMachines allow %s", strings.Join(settings.AllowedMachineTypes, ", "))))
}

func gated(spec *v1.VirtualMachineInstanceSpec, path *field.Path, settings clusterconfig.Settings) field.ErrorList {
	var errs field.ErrorList
	forbid := func(at *field.Path, gate string) {
		errs = append(errs, field.Forbidden(at, gate+" feature gate is not enabled: "+
			"an administrator adds it to spec.configuration.developerConfiguration.featureGates of the KubeVirt object"))
	}
	for i := range spec.Volumes {
		at := path.Child("volumes").Index(i)
		if spec.Volumes[i].HostDisk != nil && !settings.HostDisk {
			forbid(at.Child("hostDisk"), clusterconfig.GateHostDisk)
		}
		if spec.Volumes[i].DownwardMetrics != nil && !settings.DownwardMetrics {
			forbid(at.Child("downwardMetrics"), clusterconfig.GateDownwardMetrics)
		}
	}
	if spec.Domain.Devices.DownwardMetrics != nil && !settings.DownwardMetrics {
		forbid(path.Child("domain", "devices", "downwardMetrics"), clusterconfig.GateDownwardMetrics)
	}
	return errs
}

// bridges validates interfaces that take their pod's address.
func bridges(spec *v1.VirtualMachineInstanceSpec, at *field.Path, settings clusterconfig.Settings) field.ErrorList {
	if settings.BridgeOnPodNetwork {
		return nil
	}
	pods := map[string]bool{}
	for i := range spec.Networks {
		pods[spec.Networks[i].Name] = spec.Networks[i].Pod != nil
	}
	var errs field.ErrorList
	for i, iface := range spec.Domain.Devices.Interfaces {
		if iface.Bridge != nil && pods[iface.Name] {
			errs = append(errs, field.Forbidden(at.Index(i).Child("bridge"), "bridge on the pods' network is not enabled: use masquerade, or "+
				"an administrator sets spec.configuration.network.permitBridgeInterfaceOnPodNetwork of the KubeVirt object"))
		}
	}
	return errs
}
