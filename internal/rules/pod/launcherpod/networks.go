package launcherpod

import (
	"encoding/json"
	"fmt"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
)

const (
	// NetworksAnnotation of a pod asks Multus for secondary interfaces. While the guest runs, it has the desired value,
	// for components that attach interfaces to running pods.
	NetworksAnnotation = "k8s.v1.cni.cncf.io/networks"
	// MadeWithAnnotation keeps the value of NetworksAnnotation at the pod's creation.
	MadeWithAnnotation = "drydock.dev/made-with-networks"
)

// Attachment is an element of NetworksAnnotation. A network binding's has arguments for its plugin, and no interface
// name.
type Attachment struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Interface string `json:"interface,omitempty"`
	MAC       string `json:"mac,omitempty"`
	Args      *Args  `json:"cni-args,omitempty"`
}

// Args are for a binding's plugin.
type Args struct {
	LogicNetworkName string `json:"logicNetworkName"`
}

// Attachments returns the attachments of the VMI's pod in the order of its networks, without absent interfaces. Only a
// device gets a MAC address, which the network plugin alone can set. With another interface's, a migration's target pod
// would have the guest's address while the guest is in the source (decision 330).
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

// Networks returns NetworksAnnotation for the VMI's networks, or with the pod network alone the VMI's own annotation.
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
