package launcherpod

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
)

const (
	// NetworksAnnotation of a pod asks Multus for interfaces besides that on the pod network. While the
	// guest runs, its value is the desired one, for components that attach interfaces to running pods.
	NetworksAnnotation = "k8s.v1.cni.cncf.io/networks"
	// MadeWithAnnotation has the value of NetworksAnnotation at the pod's creation. It stays.
	MadeWithAnnotation = "drydock.dev/made-with-networks"
)

// Attachment is an element of NetworksAnnotation: a NetworkAttachmentDefinition, and the name of the
// pod's interface on it. A network binding's has no interface name but arguments for the plugin.
type Attachment struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Interface string `json:"interface,omitempty"`
	MAC       string `json:"mac,omitempty"`
	Args      *Args  `json:"cni-args,omitempty"`
}

// Args are for a network binding's plugin.
type Args struct {
	// LogicNetworkName is from the VMI's spec.
	LogicNetworkName string `json:"logicNetworkName"`
}

// Attachments returns the attachments of the VMI's pod in the order of its networks, without those
// of absent interfaces. Only a device gets a MAC address, which nobody but the network plugin can
// set. For another interface, the plugin would give the guest's address to a migration's target pod
// while the guest is still in the source (decision 330).
func Attachments(vmi *v1.VirtualMachineInstance) []Attachment {
	absent, devices := map[string]bool{}, map[string]bool{}
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		iface := &vmi.Spec.Domain.Devices.Interfaces[i]
		absent[iface.Name], devices[iface.Name] = iface.State == v1.InterfaceStateAbsent, machine.IsDevice(iface)
	}
	var list []Attachment
	for i := range vmi.Spec.Networks {
		if n := &vmi.Spec.Networks[i]; n.Multus != nil && !absent[n.Name] {
			a := AttachmentOf(vmi.Namespace, n)
			if devices[n.Name] {
				a.MAC = machine.MAC(vmi, n.Name)
			}
			list = append(list, a)
		}
	}
	return list
}

// AttachmentOf returns a pod's attachment to a Multus network.
func AttachmentOf(podNamespace string, n *v1.Network) Attachment {
	namespace, name, found := strings.Cut(n.Multus.NetworkName, "/")
	if !found {
		namespace, name = podNamespace, n.Multus.NetworkName
	}
	return Attachment{Name: name, Namespace: namespace, Interface: layout.SecondaryInterface(n.Name)}
}

// Networks returns NetworksAnnotation for the VMI's networks. With the pod network alone, it is the
// VMI's own annotation of that name, "" for none.
func Networks(vmi *v1.VirtualMachineInstance) string {
	list := Attachments(vmi)
	if len(list) == 0 {
		return vmi.Annotations[NetworksAnnotation]
	}
	return Encode(list)
}

// Encode returns the value of NetworksAnnotation.
func Encode(list []Attachment) string {
	text, err := json.Marshal(list)
	if err != nil {
		panic(fmt.Sprintf("a list of strings does not encode: %v", err))
	}
	return string(text)
}

// annotateNetworks sets both annotations on a new pod. It removes a MadeWithAnnotation copied from the VMI.
func annotateNetworks(pod *corev1.Pod, networks string) {
	delete(pod.Annotations, MadeWithAnnotation)
	if networks != "" {
		pod.Annotations[NetworksAnnotation], pod.Annotations[MadeWithAnnotation] = networks, networks
	}
}
