package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/metrictable"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/object/quantity"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

var (
	vmCreated  = metrictable.Of("kubevirt_vm_create_date_timestamp_seconds")
	vmRequests = metrictable.Of("kubevirt_vm_resource_requests")
	vmLimits   = metrictable.Of("kubevirt_vm_resource_limits")
	vmDiskSize = metrictable.Of("kubevirt_vm_disk_allocated_size_bytes")
	vmNIC      = metrictable.Of("kubevirt_vm_vnic_info")
	vmiNIC     = metrictable.Of("kubevirt_vmi_vnic_info")
)

// sinceTransition is by statusGroup.
var sinceTransition = map[string]metrictable.Series{
	groupStarting:   metrictable.Of("kubevirt_vm_starting_status_last_transition_timestamp_seconds"),
	groupRunning:    metrictable.Of("kubevirt_vm_running_status_last_transition_timestamp_seconds"),
	groupMigrating:  metrictable.Of("kubevirt_vm_migrating_status_last_transition_timestamp_seconds"),
	groupNonRunning: metrictable.Of("kubevirt_vm_non_running_status_last_transition_timestamp_seconds"),
	groupError:      metrictable.Of("kubevirt_vm_error_status_last_transition_timestamp_seconds"),
}

// collectVM has the VM's VMI, nil without one.
func (c *Collector) collectVM(ctx context.Context, out chan<- prometheus.Metric, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) {
	out <- machineInfo(vm)
	if !vm.CreationTimestamp.IsZero() {
		out <- vmCreated.At(float64(vm.CreationTimestamp.Unix()), vm.Name, vm.Namespace)
	}
	collectTransitions(out, vm)
	if vm.Spec.Template == nil {
		return
	}
	spec := &vm.Spec.Template.Spec
	collectNICs(out, vmNIC, client.ObjectKeyFromObject(vm), spec)
	c.collectDisks(ctx, out, vm)
	if vm.Spec.Instancetype != nil {
		// The template lacks what the instance type says, and the VMI has it.
		if vmi == nil {
			return
		}
		spec = &vmi.Spec
	}
	collectRequests(out, vm, spec)
	collectLimits(out, vm, spec)
}

// collectTransitions says when the conditions by which KubeVirt's status changes were last changed. Of a VM without any,
// only the zeros of the other groups are known.
func collectTransitions(out chan<- prometheus.Metric, vm *v1.VirtualMachine) {
	last := int64(0)
	for _, c := range vm.Status.Conditions {
		switch c.Type {
		case v1.VirtualMachineReady, v1.VirtualMachineFailure, v1.VirtualMachinePaused:
			last = max(last, c.LastTransitionTime.Unix())
		}
	}
	group := statusGroup(vm.Status.PrintableStatus)
	for of, series := range sinceTransition {
		switch {
		case of != group:
			out <- series.At(0, vm.Name, vm.Namespace)
		case last > 0:
			out <- series.At(float64(last), vm.Name, vm.Namespace)
		}
	}
}

func collectRequests(out chan<- prometheus.Metric, vm *v1.VirtualMachine, spec *v1.VirtualMachineInstanceSpec) {
	send := func(resource, unit, source string, value float64) {
		if value > 0 {
			out <- vmRequests.At(value, vm.Name, vm.Namespace, resource, unit, source)
		}
	}
	domain := &spec.Domain
	send("memory", "bytes", "domain", domain.Resources.Requests.Memory().AsApproximateFloat64())
	if m := domain.Memory; m != nil {
		if m.Guest != nil {
			send("memory", "bytes", "guest", m.Guest.AsApproximateFloat64())
		}
		if m.Hugepages != nil {
			if size, err := quantity.Pages(m.Hugepages.PageSize); err == nil {
				send("memory", "bytes", "hugepages", size.AsApproximateFloat64())
			}
		}
	}
	cpus := domain.Resources.Requests.Cpu()
	send("cpu", "cores", "requests", float64(cpus.MilliValue())/1000)
	switch {
	case domain.CPU != nil:
		send("cpu", "cores", "domain", float64(domain.CPU.Cores))
		send("cpu", "threads", "domain", float64(domain.CPU.Threads))
		send("cpu", "sockets", "domain", float64(domain.CPU.Sockets))
	case cpus.IsZero():
		for _, unit := range []string{"cores", "threads", "sockets"} {
			send("cpu", unit, "default", 1)
		}
	}
	send("memory", "bytes", "guest_effective", float64(machine.GuestMemory(spec)))
	send("cpu", "cores", "guest_effective", float64(machine.VCPUs(machine.Topology(spec))))
}

func collectLimits(out chan<- prometheus.Metric, vm *v1.VirtualMachine, spec *v1.VirtualMachineInstanceSpec) {
	limits := spec.Domain.Resources.Limits
	if m := limits.Memory(); !m.IsZero() {
		out <- vmLimits.At(m.AsApproximateFloat64(), vm.Name, vm.Namespace, "memory", "bytes")
	}
	if cpus := limits.Cpu(); !cpus.IsZero() {
		out <- vmLimits.At(float64(cpus.MilliValue())/1000, vm.Name, vm.Namespace, "cpu", "cores")
	}
}

func (c *Collector) collectDisks(ctx context.Context, out chan<- prometheus.Metric, vm *v1.VirtualMachine) {
	each := distinct{out: out}
	for i := range vm.Spec.Template.Spec.Volumes {
		volume := &vm.Spec.Template.Spec.Volumes[i]
		name := volumeclaim.Disk(&volume.VolumeSource)
		if name == "" {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: vm.Namespace, Name: name}
		if err := c.Cache.Get(ctx, key, claim, client.UnsafeDisableDeepCopy); err != nil {
			continue // it does not exist yet
		}
		mode := corev1.PersistentVolumeFilesystem
		if claim.Spec.VolumeMode != nil {
			mode = *claim.Spec.VolumeMode
		}
		each.send(vmDiskSize, claim.Spec.Resources.Requests.Storage().AsApproximateFloat64(), vm.Name, vm.Namespace, label(name), string(mode), label(volume.Name))
	}
}

// collectNICs is for the interfaces of a template or a VMI.
func collectNICs(out chan<- prometheus.Metric, series metrictable.Series, of client.ObjectKey, spec *v1.VirtualMachineInstanceSpec) {
	networks := make(map[string]string, len(spec.Networks))
	for i := range spec.Networks {
		switch n := &spec.Networks[i]; {
		case n.Pod != nil:
			networks[n.Name] = "pod networking"
		case n.Multus != nil:
			networks[n.Name] = label(n.Multus.NetworkName)
		}
	}
	each := distinct{out: out}
	for i := range spec.Domain.Devices.Interfaces {
		nic := &spec.Domain.Devices.Interfaces[i]
		network, connected := networks[nic.Name]
		if !connected {
			continue
		}
		model := nic.Model
		if model == "" {
			model = "<none>"
		}
		kind, binding := bindingOf(nic)
		each.send(series, 1, of.Name, of.Namespace, label(nic.Name), kind, network, binding, label(model))
	}
}

func bindingOf(nic *v1.Interface) (kind, name string) {
	switch {
	case nic.Masquerade != nil:
		return "core", "masquerade"
	case nic.Bridge != nil:
		return "core", "bridge"
	case nic.SRIOV != nil:
		return "core", "sriov"
	case nic.Binding != nil:
		return "plugin", label(nic.Binding.Name)
	}
	return "", ""
}
