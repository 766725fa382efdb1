package network

import (
	"fmt"

	"github.com/go-logr/logr"

	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/network/sriov"
)

// setupDevice makes nothing: the network plugin has set up the node's device, and QEMU passes it through.
func setupDevice(pod Pod, p plan, _ logr.Logger) (Interface, []server, error) {
	device := pod.Devices[p.podInterface]
	if device == "" && pod.sets(p.name) {
		return Interface{}, nil, fmt.Errorf("%s.sriov: which device of the node it is, the launcher pod does not say: its annotation %s must name for %s the PCI device "+
			"(device-info) that a device plugin has given to the pod; look at the resource that the NetworkAttachmentDefinition %s names (%s), and its plugin",
			p.path, nichotplug.StatusAnnotation, p.podInterface, p.attachment, sriov.ResourceAnnotation)
	}
	return Interface{Name: p.name, MAC: p.mac.String(), Queues: 1, PodInterface: p.podInterface, Device: device}, nil, nil
}
