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
	// NetworksAnnotation of a pod asks Multus for interfaces beside that on the pods' network. While the
	// guest runs it says what the pod is to have, for whoever attaches interfaces to pods that run.
	NetworksAnnotation = "k8s.v1.cni.cncf.io/networks"
	// MadeWithAnnotation is what NetworksAnnotation said when virt-controller made the pod. It stays.
	MadeWithAnnotation = "drydock.dev/made-with-networks"
)

// Attachment is an element of NetworksAnnotation: a NetworkAttachmentDefinition, and what the
// pod's interface on it is called. That of a network binding names no interface, and tells the plugin which network it is for.
type Attachment struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Interface string `json:"interface,omitempty"`
	MAC       string `json:"mac,omitempty"`
	Args      *Args  `json:"cni-args,omitempty"`
}

// Args are what the plugin of a network binding is told.
type Args struct {
	// LogicNetworkName is the name of the network in the VMI's spec.
	LogicNetworkName string `json:"logicNetworkName"`
}

// Attachments are what a pod of the VMI is attached to for the VMI's networks, in their order. Those of
// interfaces that are absent are left out. A MAC address is asked for of a device only, which nobody but the
// network plugin can give one. Of another interface, the network plugin would give the guest's to the target pod of a
// migration, while the guest is still in another one (decision 330).
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

// AttachmentOf is what a pod in a namespace is attached to for a network of Multus'.
func AttachmentOf(podNamespace string, n *v1.Network) Attachment {
	namespace, name, found := strings.Cut(n.Multus.NetworkName, "/")
	if !found {
		namespace, name = podNamespace, n.Multus.NetworkName
	}
	return Attachment{Name: name, Namespace: namespace, Interface: layout.SecondaryInterface(n.Name)}
}

// Networks is the value of NetworksAnnotation for the VMI's networks. When the pods' own is all that it
// has, it is what the VMI's owner has written into the VMI's annotation of that name, "" for nothing.
func Networks(vmi *v1.VirtualMachineInstance) string {
	list := Attachments(vmi)
	if len(list) == 0 {
		return vmi.Annotations[NetworksAnnotation]
	}
	return Encode(list)
}

// Encode is the value of NetworksAnnotation for attachments.
func Encode(list []Attachment) string {
	text, err := json.Marshal(list)
	if err != nil {
		panic(fmt.Sprintf("a list of strings does not encode: %v", err))
	}
	return string(text)
}

// noteNetworks has a pod that is made ask for networks. A VMI's own annotation says nothing of what
// the pod was made with.
func noteNetworks(pod *corev1.Pod, networks string) {
	delete(pod.Annotations, MadeWithAnnotation)
	if networks != "" {
		pod.Annotations[NetworksAnnotation], pod.Annotations[MadeWithAnnotation] = networks, networks
	}
}
