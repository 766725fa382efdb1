// Package hostdevice decides about PCI devices of nodes in guests (hostDevices and gpus): which resources are permitted,
// which of a node's devices virt-handler offers to the kubelet as which resource, and which of the allocated devices each
// entry of a spec is.
//
//	source                                  writable by
//	permittedHostDevices                    administrators
//	the pod's resources                     virt-controller, once; the API server refuses changes
//	the node's devices, drivers and groups  the kernel
//	the container's devices, environment    the kubelet, once, by the device plugin's answer
//
// QEMU can open only the groups that the kubelet has put into the container, whatever it is told (decision 405).
//
// The package must not import a client, or read a node's files.
package hostdevice

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/network/sriov"
)

const (
	environmentPrefix = "PCI_RESOURCE_" // of a device plugin's lists of the container's devices, as with KubeVirt
	maxAllocated      = 256             // addresses of a resource in a container
	maxShown          = 64              // characters of an environment variable that an error repeats
)

// Device is an entry of a spec.
type Device struct {
	// ID is unique in the machine.
	ID   string
	Name string
	// Path is below spec.domain.
	Path     string
	Resource string
	// Tag is for the guest's metadata.
	Tag string
	// kind is KubeVirt's word for it in refusals.
	kind string
}

// Of returns a spec's devices in the order of their addresses in the guest.
func Of(spec *v1.VirtualMachineInstanceSpec) []Device {
	var list []Device
	for i, d := range spec.Domain.Devices.HostDevices {
		list = append(list, Device{"hostdev-" + d.Name, d.Name, fmt.Sprintf("devices.hostDevices[%d]", i), d.DeviceName, d.Tag, "HostDevice"})
	}
	for i, d := range spec.Domain.Devices.GPUs {
		list = append(list, Device{"gpu-" + d.Name, d.Name, fmt.Sprintf("devices.gpus[%d]", i), d.DeviceName, d.Tag, "GPU"})
	}
	return list
}

// Any reports whether a spec has such devices.
func Any(spec *v1.VirtualMachineInstanceSpec) bool {
	return len(spec.Domain.Devices.HostDevices)+len(spec.Domain.Devices.GPUs) > 0
}

// Requests returns how many devices of each resource the launcher pod must have, or the first device that is not permitted.
func Requests(spec *v1.VirtualMachineInstanceSpec, permitted Permitted) (map[corev1.ResourceName]int64, error) {
	count := map[corev1.ResourceName]int64{}
	for _, d := range Of(spec) {
		if refusal := permitted.Refusal(d); refusal != "" {
			return nil, fmt.Errorf("spec.domain.%s.deviceName: %s", d.Path, refusal)
		}
		count[corev1.ResourceName(d.Resource)]++
	}
	return count, nil
}

// Variable returns the environment variable in which a device plugin lists a container's devices of a resource.
func Variable(resource string) string {
	return environmentPrefix + strings.NewReplacer("/", "_", ".", "_").Replace(strings.ToUpper(resource))
}

// Assign returns the PCI address of each of a spec's devices, by ID, from the environment of its container.
func Assign(spec *v1.VirtualMachineInstanceSpec, environment []string) (map[string]string, error) {
	assigned, taken := map[string]string{}, map[string]bool{}
	for _, d := range Of(spec) {
		variable := Variable(d.Resource)
		text, listed := allocated(environment, variable)
		free := slices.DeleteFunc(listed, func(address string) bool { return taken[address] })
		if len(free) == 0 {
			return nil, fmt.Errorf("spec.domain.%s.deviceName: which device of the node it is, the launcher pod was not told: the device plugin of %s "+
				"must set %s to the PCI address of each device that it gives, such as 0000:65:00.0, and the variable is %.*q", d.Path, d.Resource, variable, maxShown, text)
		}
		assigned[d.ID], taken[free[0]] = free[0], true
	}
	return assigned, nil
}

// allocated ignores the whole text if a part is no address.
func allocated(environment []string, variable string) (text string, addresses []string) {
	for _, line := range environment {
		if name, value, _ := strings.Cut(line, "="); name == variable {
			text = value
			break
		}
	}
	// KubeVirt, which plugins are made for, tolerates a comma at the end.
	parts := strings.Split(strings.TrimSuffix(text, ","), ",")
	if len(parts) > maxAllocated || !all(parts, sriov.IsAddress) {
		return text, nil
	}
	return text, parts
}

func all(list []string, is func(string) bool) bool {
	return !slices.ContainsFunc(list, func(s string) bool { return !is(s) })
}

// Immovable returns why a guest with devices of its node can't migrate, "" without any.
func Immovable(spec *v1.VirtualMachineInstanceSpec) string {
	if !Any(spec) {
		return ""
	}
	names := map[string]bool{}
	for _, d := range Of(spec) {
		names[d.Name] = true
	}
	return "the guest has devices of its node (" + strings.Join(slices.Sorted(maps.Keys(names)), ", ") + ")"
}
