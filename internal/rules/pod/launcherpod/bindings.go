package launcherpod

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/network/networkbinding"
)

func eachBinding(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings, do func(iface *v1.Interface, b *networkbinding.Binding)) error {
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		iface := &vmi.Spec.Domain.Devices.Interfaces[i]
		b, err := settings.NetworkBindings.Of(iface)
		if err != nil {
			return fmt.Errorf("spec.domain.devices.interfaces[%d].binding.name: %w", i, err)
		}
		if b != nil {
			do(iface, b)
		}
	}
	return nil
}

func askForNetworks(pod *corev1.Pod, vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) error {
	var bindings []Attachment
	err := eachBinding(vmi, settings, func(iface *v1.Interface, b *networkbinding.Binding) {
		if b.Attachment != "" && iface.State != v1.InterfaceStateAbsent {
			bindings = append(bindings, Attachment{Name: b.Attachment, Namespace: cmp.Or(b.Namespace, vmi.Namespace), Args: &Args{iface.Name}})
		}
	})
	if err != nil {
		return err
	}
	networks := Networks(vmi)
	if len(bindings) > 0 {
		networks = Encode(append(Attachments(vmi), bindings...))
	}
	// The VMI's annotations may include one.
	delete(pod.Annotations, MadeWithAnnotation)
	if networks != "" {
		pod.Annotations[NetworksAnnotation], pod.Annotations[MadeWithAnnotation] = networks, networks
	}
	return nil
}

// bindingOverhead returns the bindings' memory in bytes, each counted once. An interface that is being removed counts.
func bindingOverhead(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) (bytes int64, err error) {
	counted := map[string]bool{}
	err = eachBinding(vmi, settings, func(iface *v1.Interface, b *networkbinding.Binding) {
		if b.Memory != nil && !counted[iface.Binding.Name] {
			counted[iface.Binding.Name] = true
			bytes += b.Memory.Value()
		}
	})
	return bytes, err
}
