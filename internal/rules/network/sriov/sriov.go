// Package sriov decides which device of its node an SR-IOV interface of a guest is: the resource that
// the launcher pod requests, and which of the pod's devices QEMU opens.
//
//	source                                                     writable by
//	the NetworkAttachmentDefinition's annotation resourceName  all who may change the definition (a namespace's admin)
//	the pod's resources                                        virt-controller, once; the API server refuses changes
//	the container's device nodes and environment               the kubelet, once, by the device plugin's answer
//	the pod's annotation network-status                        Multus, and all who may change pods in the namespace
//
// An author of a definition gets no more than by his own pods: an extended resource, which quotas count.
// Resources of Kubernetes's and Drydock's domains are refused.
//
// network-status only assigns the pod's devices, which the environment lists, to interfaces. QEMU can open
// only the devices that the kubelet has put into the container, whatever it is told (decision 404).
//
// The package must not import a client.
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
	// ResourceAnnotation of a NetworkAttachmentDefinition names the resource that a pod on that network needs.
	ResourceAnnotation = "k8s.v1.cni.cncf.io/resourceName"
	environmentPrefix  = "PCIDEVICE_" // of a device plugin's lists of the container's devices
	maxDevices         = 256          // of a pod: more than the ports of a machine
	maxShown           = 64           // characters of an annotation that an error repeats
)

var address = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)

// IsAddress reports whether text is a PCI address such as 0000:65:00.2, as the kernel writes it.
func IsAddress(text string) bool { return address.MatchString(text) }

// Any reports whether the spec has SR-IOV interfaces, including absent ones, which may come back.
func Any(spec *v1.VirtualMachineInstanceSpec) bool {
	for i := range spec.Domain.Devices.Interfaces {
		if spec.Domain.Devices.Interfaces[i].SRIOV != nil {
			return true
		}
	}
	return false
}

// Resource returns the resource named by a NetworkAttachmentDefinition's annotations.
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

// refused returns why a launcher pod does not request a resource, "" if it does. Unlike the API server, it refuses a
// name that only looks like a reserved one, too.
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
	// A quota counts the resource under this name.
	if errs := validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix + name); len(errs) > 0 {
		return errs[0]
	}
	return ""
}

func belongsTo(domain, to string) bool {
	domain = strings.ToLower(domain)
	return domain == to || strings.HasSuffix(domain, "."+to)
}

// Given returns the PCI addresses in a container's environment.
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
