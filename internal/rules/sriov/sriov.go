// Package sriov decides which device of its node an SR-IOV interface of a guest is: what the launcher pod asks the node
// for, and which of the devices that the pod was given QEMU opens.
//
//	says                                                       who can write it
//	the NetworkAttachmentDefinition's annotation resourceName  whoever may change the definition, as a namespace's admin
//	the pod's resources                                        virt-controller, once; the API server lets nobody change them
//	the container's device nodes and environment               the kubelet, once, as the device plugin tells it
//	the pod's annotation network-status                        Multus, and whoever may change pods in the namespace
//
// An author of a definition gets no more than he could ask for in a pod of his own: an extended resource, which quotas count
// as in any pod. Resources that Kubernetes owns, and Drydock's, are refused.
//
// network-status says which of the pod's devices is which interface's, and nothing else is believed of it: an address that
// the environment does not have is none of the pod's. What QEMU can open, whatever it is told, is what the kubelet
// has put into the container; that is the lock. See decision 404.
//
// The package is pure: it must not import a client.
package sriov

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
)

const (
	// ResourceAnnotation of a NetworkAttachmentDefinition names the resource of the node that a pod on that network needs.
	ResourceAnnotation = "k8s.v1.cni.cncf.io/resourceName"
	// environmentPrefix begins the names of the variables by which a device plugin tells a container its devices.
	environmentPrefix = "PCIDEVICE_"
	// maxDevices bounds how many devices a pod is believed to have: more than a machine has ports for.
	maxDevices = 256
	// maxShown bounds what an error repeats of an annotation.
	maxShown = 64
)

// address is a PCI address as the kernel writes it.
var address = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)

// IsAddress reports whether a text is a PCI address, as 0000:65:00.2.
func IsAddress(text string) bool { return address.MatchString(text) }

// Any reports whether a guest of the spec has such interfaces, or may get one back that is absent now.
func Any(spec *v1.VirtualMachineInstanceSpec) bool {
	for i := range spec.Domain.Devices.Interfaces {
		if spec.Domain.Devices.Interfaces[i].SRIOV != nil {
			return true
		}
	}
	return false
}

// Resource returns the resource that the annotations of a NetworkAttachmentDefinition name.
func Resource(annotations map[string]string) (corev1.ResourceName, error) {
	name := annotations[ResourceAnnotation]
	if name == "" {
		return "", fmt.Errorf("has no annotation %s, which names the resource that a device plugin offers for it", ResourceAnnotation)
	}
	if why := refused(name); why != "" {
		return "", fmt.Errorf("asks for %.*q in its annotation %s: %s", maxShown, name, ResourceAnnotation, why)
	}
	return corev1.ResourceName(name), nil
}

// refused is why a launcher pod does not ask for a resource, "" if it does. It is the API server's rule of what an extended
// resource is, and more than that: a name that only looks like another one is refused, too.
func refused(name string) string {
	domain, _, found := strings.Cut(name, "/")
	switch {
	case !found:
		return "it must be a device plugin's, as example.com/vf"
	case belongsTo(domain, "kubernetes.io"), belongsTo(domain, "k8s.io"), belongsTo(domain, "kubevirt.io"), belongsTo(domain, "drydock.dev"):
		return "resources of that domain are not for networks"
	case strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix):
		return "no resource begins like that"
	}
	// A quota counts it under this name.
	if errs := validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix + name); len(errs) > 0 {
		return errs[0]
	}
	return ""
}

// belongsTo reports whether a domain is one, or below it.
func belongsTo(domain, to string) bool {
	domain = strings.ToLower(domain)
	return domain == to || strings.HasSuffix(domain, "."+to)
}

// Given returns the PCI addresses of the devices that a container has, as its environment says.
func Given(environment []string) map[string]bool {
	given := map[string]bool{}
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, environmentPrefix) {
			continue
		}
		for part := range strings.SplitSeq(value, ",") {
			if IsAddress(part) && len(given) < maxDevices {
				given[part] = true
			}
		}
	}
	return given
}
