package launcherpod

import (
	"encoding/json"
	"fmt"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// NetworksAnnotation of a pod asks Multus for interfaces beside that on the pods' network.
const NetworksAnnotation = "k8s.v1.cni.cncf.io/networks"

// attachment is an element of NetworksAnnotation: a NetworkAttachmentDefinition, and what the
// pod's interface on it is called.
type attachment struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Interface string `json:"interface"`
}

// attachments is the value of NetworksAnnotation for the VMI's networks; empty when the pods' own
// is all that it has. No MAC address is asked for: the network plugin would give the guest's to the
// target pod of a migration, while the guest is still in another one (decision 330).
func attachments(vmi *v1.VirtualMachineInstance) (string, error) {
	var list []attachment
	for i := range vmi.Spec.Networks {
		n := &vmi.Spec.Networks[i]
		if n.Multus == nil {
			continue
		}
		namespace, name, found := strings.Cut(n.Multus.NetworkName, "/")
		if !found {
			namespace, name = vmi.Namespace, n.Multus.NetworkName
		}
		list = append(list, attachment{name, namespace, layout.SecondaryInterface(n.Name)})
	}
	if len(list) == 0 {
		return "", nil
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("writing the networks of the pod: %w", err)
	}
	return string(text), nil
}
