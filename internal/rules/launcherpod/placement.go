package launcherpod

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine"
)

// Constrain sets where a pod may run that is not the VMI's own and must fit where its launcher pod does. A name that
// the guest has in its network is not this pod's.
func Constrain(spec *corev1.PodSpec, vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) {
	place(spec, vmi, settings)
	spec.Hostname, spec.Subdomain = "", ""
}

// place sets where the pod may run and how it is known on the network.
func place(spec *corev1.PodSpec, vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) {
	in := vmi.Spec.DeepCopy()
	spec.NodeSelector = nodeSelector(vmi, settings)
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

func nodeSelector(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) map[string]string {
	selector := maps.Clone(vmi.Spec.NodeSelector)
	if selector == nil {
		selector = map[string]string{}
	}
	// The administrator's, whatever the VMI says.
	maps.Copy(selector, settings.NodeSelectors)
	// Only nodes whose virt-handler has found that QEMU starts there.
	selector[v1.NodeSchedulable] = "true"
	if vmi.Spec.Architecture != "" {
		selector[corev1.LabelArchStable] = vmi.Spec.Architecture
	}
	// Emulation has every CPU model everywhere; hardware has what it has.
	if model := namedCPUModel(vmi); model != "" && !settings.UseEmulation {
		selector[v1.CPUModelLabel+model] = "true"
	}
	return selector
}

// namedCPUModel is the CPU model that a node must be able to offer, empty when
// any node will do.
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
