package launcherpod

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/machine/machinetype"
	"drydock.dev/drydock/internal/rules/vmi/cpupinning"
)

// Constrain sets the placement of another pod that must fit where the VMI's launcher pod does, without the guest's
// hostname and subdomain.
func Constrain(spec *corev1.PodSpec, vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) {
	place(spec, vmi, settings)
	spec.Hostname, spec.Subdomain = "", ""
}

func place(spec *corev1.PodSpec, vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) {
	in := vmi.Spec.DeepCopy()
	selector := in.NodeSelector
	if selector == nil {
		selector = map[string]string{}
	}
	// The administrator's selectors override the VMI's.
	maps.Copy(selector, settings.NodeSelectors)
	// virt-handler sets this label once QEMU has started on the node.
	selector[v1.NodeSchedulable] = "true"
	if vmi.Spec.Architecture != "" {
		selector[corev1.LabelArchStable] = vmi.Spec.Architecture
	}
	// Emulation has every CPU model on every node.
	if model := namedCPUModel(vmi); model != "" && !settings.UseEmulation {
		selector[v1.CPUModelLabel+model] = "true"
	}
	// Virt-handlers of the release before label their nodes, too, but their launchers' QEMU is older.
	if kind := machineType(vmi); kind != machinetype.Newest && machinetype.Known(kind) && !machinetype.InEveryRelease(kind) {
		selector[v1.SupportedMachineTypeLabel+kind] = "true"
	}
	if cpupinning.Dedicated(&vmi.Spec.Domain) {
		selector[v1.CPUManager] = "true"
	}
	spec.NodeSelector = selector
	if settings.RuntimeClass != "" {
		spec.RuntimeClassName = new(settings.RuntimeClass)
	}
	spec.Affinity = in.Affinity
	spec.Tolerations = in.Tolerations
	spec.TopologySpreadConstraints = in.TopologySpreadConstraints
	spec.PriorityClassName = in.PriorityClassName
	spec.SchedulerName = in.SchedulerName
	spec.Hostname = machine.Hostname(vmi)
	spec.Subdomain = in.Subdomain
	spec.DNSPolicy = in.DNSPolicy
	spec.DNSConfig = in.DNSConfig
}

// machineType returns the type that the guest runs as, or will run as.
func machineType(vmi *v1.VirtualMachineInstance) string {
	if m := vmi.Status.Machine; m != nil && m.Type != "" {
		return m.Type
	}
	if m := vmi.Spec.Domain.Machine; m != nil {
		return m.Type
	}
	return ""
}

func namedCPUModel(vmi *v1.VirtualMachineInstance) string {
	if vmi.Spec.Domain.CPU == nil {
		return ""
	}
	switch model := vmi.Spec.Domain.CPU.Model; model {
	case v1.CPUModeHostModel, v1.CPUModeHostPassthrough:
		return ""
	default:
		return model
	}
}
