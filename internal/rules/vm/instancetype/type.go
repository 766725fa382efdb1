package instancetype

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

type typed struct {
	template *v1.VirtualMachineInstanceTemplateSpec
	source   *Source
	errs     field.ErrorList
}

// applyType applies a type to a template, with its CPUs in the given topology. It returns an error
// for each field that both set.
func applyType(template *v1.VirtualMachineInstanceTemplateSpec, source *Source, t topology) field.ErrorList {
	a := typed{template: template, source: source}
	a.cpu(t)
	a.memory()
	a.devices()
	a.placement()
	a.annotations()
	return a.errs
}

func (a *typed) taken(says bool, path *field.Path) bool {
	if says {
		a.errs = append(a.errs, field.Forbidden(path, fmt.Sprintf("VM field(s) %s conflicts with selected instance type: "+
			"%s sets it; leave it out, or select another instance type", path, a.source)))
	}
	return says
}

func (a *typed) cpu(t topology) {
	says, domain := a.source.Type.CPU, &a.template.Spec.Domain
	cpu, path := need(&domain.CPU), vmiPath.Child("domain", "cpu")
	named := a.taken(cpu.Sockets != 0, path.Child("sockets"))
	named = a.taken(cpu.Cores != 0, path.Child("cores")) || named
	named = a.taken(cpu.Threads != 0, path.Child("threads")) || named
	named = a.resource(corev1.ResourceCPU) || named
	if !named {
		cpu.Sockets, cpu.Cores, cpu.Threads = t.of(says.Guest)
	}
	if says.Model != nil && !a.taken(cpu.Model != "", path.Child("model")) {
		cpu.Model = *says.Model
	}
	if says.MaxSockets != nil && !a.taken(cpu.MaxSockets != 0, path.Child("maxSockets")) {
		cpu.MaxSockets = *says.MaxSockets
	}
	a.pinning(cpu, path)
}

func (a *typed) pinning(cpu *v1.CPU, path *field.Path) {
	says := a.source.Type.CPU
	if says.DedicatedCPUPlacement != nil && !a.taken(cpu.DedicatedCPUPlacement, path.Child("dedicatedCpuPlacement")) {
		cpu.DedicatedCPUPlacement = *says.DedicatedCPUPlacement
	}
	if says.IsolateEmulatorThread != nil && !a.taken(cpu.IsolateEmulatorThread, path.Child("isolateEmulatorThread")) {
		cpu.IsolateEmulatorThread = *says.IsolateEmulatorThread
	}
	if says.NUMA != nil && !a.taken(cpu.NUMA != nil, path.Child("numa")) {
		cpu.NUMA = says.NUMA
	}
	if says.Realtime != nil && !a.taken(cpu.Realtime != nil, path.Child("realtime")) {
		cpu.Realtime = says.Realtime
	}
}

// resource refuses pod resources in the VM for a resource of the type.
func (a *typed) resource(name corev1.ResourceName) bool {
	resources, path := &a.template.Spec.Domain.Resources, vmiPath.Child("domain", "resources")
	_, requested := resources.Requests[name]
	_, limited := resources.Limits[name]
	requested = a.taken(requested, path.Child("requests", string(name)))
	return a.taken(limited, path.Child("limits", string(name))) || requested
}

func (a *typed) memory() {
	says, domain := a.source.Type.Memory, &a.template.Spec.Domain
	memory, path := need(&domain.Memory), vmiPath.Child("domain", "memory")
	named := a.taken(memory.Guest != nil, path.Child("guest"))
	if a.resource(corev1.ResourceMemory) || named {
		return
	}
	if !says.Guest.IsZero() {
		memory.Guest = &says.Guest
	}
	if says.Hugepages != nil && !a.taken(memory.Hugepages != nil, path.Child("hugepages")) {
		memory.Hugepages = says.Hugepages
	}
	if says.MaxGuest != nil && !a.taken(memory.MaxGuest != nil, path.Child("maxGuest")) {
		memory.MaxGuest = says.MaxGuest
	}
	if says.OvercommitPercent > 0 && memory.Guest != nil {
		if domain.Resources.Requests == nil {
			domain.Resources.Requests = corev1.ResourceList{}
		}
		domain.Resources.Requests[corev1.ResourceMemory] = overcommitted(says.Guest, says.OvercommitPercent)
	}
}

// overcommitted returns the memory request without the overcommitted percentage, rounded as a float32, so that
// clients find the number that KubeVirt computes.
func overcommitted(amount resource.Quantity, percent int) resource.Quantity {
	left := 1 - float32(percent)/100
	return *resource.NewQuantity(int64(float32(amount.Value())*left), resource.BinarySI)
}

func (a *typed) devices() {
	says, domain := a.source.Type, &a.template.Spec.Domain
	path := vmiPath.Child("domain")
	if len(says.GPUs) > 0 && !a.taken(len(domain.Devices.GPUs) > 0, path.Child("devices", "gpus")) {
		domain.Devices.GPUs = says.GPUs
	}
	if len(says.HostDevices) > 0 && !a.taken(len(domain.Devices.HostDevices) > 0, path.Child("devices", "hostDevices")) {
		domain.Devices.HostDevices = says.HostDevices
	}
	if says.IOThreadsPolicy != nil && !a.taken(domain.IOThreadsPolicy != nil, path.Child("ioThreadsPolicy")) {
		domain.IOThreadsPolicy = says.IOThreadsPolicy
	}
	if says.IOThreads != nil && !a.taken(domain.IOThreads != nil, path.Child("ioThreads")) {
		domain.IOThreads = says.IOThreads
	}
	if says.LaunchSecurity != nil && !a.taken(domain.LaunchSecurity != nil, path.Child("launchSecurity")) {
		domain.LaunchSecurity = says.LaunchSecurity
	}
}

func (a *typed) placement() {
	says, spec := a.source.Type, &a.template.Spec
	if len(says.NodeSelector) > 0 && !a.taken(len(spec.NodeSelector) > 0, vmiPath.Child("nodeSelector")) {
		spec.NodeSelector = says.NodeSelector
	}
	if says.SchedulerName != "" && !a.taken(spec.SchedulerName != "", vmiPath.Child("schedulerName")) {
		spec.SchedulerName = says.SchedulerName
	}
}

func (a *typed) annotations() {
	meta := &a.template.ObjectMeta
	for _, key := range slices.Sorted(maps.Keys(a.source.Type.Annotations)) {
		wanted := a.source.Type.Annotations[key]
		is, there := meta.Annotations[key]
		if a.taken(there && is != wanted, templatePath.Child("metadata", "annotations").Key(key)) {
			continue
		}
		annotate(meta, key, wanted)
	}
}

func (s *Source) deepCopy() *Source {
	out := *s
	if s.Type != nil {
		out.Type = s.Type.DeepCopy()
	}
	if s.Preference != nil {
		out.Preference = s.Preference.DeepCopy()
	}
	return &out
}
