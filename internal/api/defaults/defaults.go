// Package defaults fills in the fields that a new object needs from its creation: in a VirtualMachine only those of its
// guest's identity (firmware UUID, machine type), so that manifests under version control stay as they are; in a
// VirtualMachineInstance every field that components would otherwise have to guess.
//
// It edits the given object and has no client.
package defaults

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/machine/machinetype"
	"drydock.dev/drydock/internal/rules/vmi/cpupinning"
	"drydock.dev/drydock/internal/rules/vmi/implied"
)

// Architecture is the only one of Drydock's guests.
const Architecture = "amd64"

// VM completes a VM. old is nil on creation.
func VM(vm, old *v1.VirtualMachine, settings clusterconfig.Settings) {
	if old == nil && !slices.Contains(vm.Finalizers, v1.VirtualMachineControllerFinalizer) {
		// Later it would need a write of its own.
		vm.Finalizers = append(vm.Finalizers, v1.VirtualMachineControllerFinalizer)
	}
	if vm.Spec.Template == nil {
		return
	}
	spec := &vm.Spec.Template.Spec
	if old == nil {
		firmware.Create(spec)
		setMachine(spec, settings.MachineType)
		return
	}
	// A user who applies a manifest without a machine type does not mean to change the guest's hardware.
	if old.Spec.Template != nil && old.Spec.Template.Spec.Domain.Machine != nil {
		setMachine(spec, old.Spec.Template.Spec.Domain.Machine.Type)
	}
}

// VMI completes a new VMI.
func VMI(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) {
	// The VM controller sets the template's revision on creation.
	vmi.Status = v1.VirtualMachineInstanceStatus{VirtualMachineRevisionName: vmi.Status.VirtualMachineRevisionName}
	if !slices.Contains(vmi.Finalizers, v1.VirtualMachineInstanceFinalizer) {
		vmi.Finalizers = append(vmi.Finalizers, v1.VirtualMachineInstanceFinalizer)
	}
	firmware.Create(&vmi.Spec)
	Spec(&vmi.Spec, settings)
	if kind, err := settings.MachineTypes.Resolve(vmi.Spec.Domain.Machine.Type); err == nil {
		// Another QEMU build's machine type is replaced by the equivalent one. The guest's VM keeps the original.
		vmi.Spec.Domain.Machine.Type = kind
	}
}

// VMIUpdate completes a user's update if it changes nothing else: `kubectl apply` of the same manifest restores a
// list of disks without the completed fields.
func VMIUpdate(vmi, old *v1.VirtualMachineInstance, settings clusterconfig.Settings) {
	completed := vmi.Spec.DeepCopy()
	if is := old.Spec.Domain.Firmware; is != nil && (completed.Domain.Firmware == nil || completed.Domain.Firmware.UUID == "") {
		if completed.Domain.Firmware == nil {
			completed.Domain.Firmware = &v1.Firmware{}
		}
		completed.Domain.Firmware.UUID = is.UUID
	}
	if old.Spec.Domain.Machine != nil {
		setMachine(completed, old.Spec.Domain.Machine.Type)
	}
	Spec(completed, settings)
	if is := old.Spec.Domain.Machine; is != nil && machinetype.Foreign(completed.Domain.Machine.Type) {
		// It was resolved when the VMI was created.
		completed.Domain.Machine.Type = is.Type
	}
	same := old.Spec.DeepCopy()
	same.StartStrategy = completed.StartStrategy // Maintenance of a VMI changes this field.
	if equality.Semantic.DeepEqual(*completed, *same) {
		vmi.Spec = *completed
	}
}

// Spec completes a spec except for the identity. Admission also applies it to a copy of a VM's template.
func Spec(spec *v1.VirtualMachineInstanceSpec, settings clusterconfig.Settings) {
	setMachine(spec, settings.MachineType)
	if spec.Architecture == "" {
		spec.Architecture = Architecture
	}
	if spec.EvictionStrategy == nil {
		strategy := settings.EvictionStrategy
		spec.EvictionStrategy = &strategy
	}
	if spec.TerminationGracePeriodSeconds == nil {
		seconds := v1.DefaultGracePeriodSeconds
		spec.TerminationGracePeriodSeconds = &seconds
	}
	v1.SetDefaults_Probe(spec.LivenessProbe)
	v1.SetDefaults_Probe(spec.ReadinessProbe)
	setCPU(&spec.Domain, settings.CPUModel)
	machine.CompleteHyperv(&spec.Domain)
	setMemory(&spec.Domain)
	setRequests(&spec.Domain, settings)
	implied.Network(spec, settings.DefaultNetworkInterface)
	setDisks(spec)
	implied.Input(&spec.Domain.Devices)
	for i := range spec.Domain.Devices.Inputs {
		input := &spec.Domain.Devices.Inputs[i]
		if input.Bus == "" {
			input.Bus = v1.InputBusUSB
		}
		if input.Type == "" {
			input.Type = v1.InputTypeTablet
		}
	}
}

func setMachine(spec *v1.VirtualMachineInstanceSpec, machineType string) {
	if machineType == "" {
		return
	}
	if spec.Domain.Machine == nil {
		spec.Domain.Machine = &v1.Machine{}
	}
	if spec.Domain.Machine.Type == "" {
		spec.Domain.Machine.Type = machineType
	}
}

// setCPU completes the topology. Without one, the guest gets as many sockets as its CPU limit, or else request,
// covers.
func setCPU(domain *v1.DomainSpec, model string) {
	if domain.CPU == nil {
		domain.CPU = &v1.CPU{}
	}
	cpu := domain.CPU
	if cpu.Cores == 0 && cpu.Sockets == 0 && cpu.Threads == 0 {
		for _, list := range []corev1.ResourceList{domain.Resources.Limits, domain.Resources.Requests} {
			if q, ok := list[corev1.ResourceCPU]; ok && q.Sign() > 0 {
				// Value rounds up. Validation bounds the number.
				cpu.Sockets = uint32(min(q.Value(), 1<<16))
				break
			}
		}
	}
	cpu.Sockets = max(cpu.Sockets, 1)
	cpu.Cores = max(cpu.Cores, 1)
	cpu.Threads = max(cpu.Threads, 1)
	if cpu.Model == "" {
		cpu.Model = model
	}
}

func setMemory(domain *v1.DomainSpec) {
	if domain.Memory != nil && domain.Memory.Guest != nil {
		return
	}
	var guest resource.Quantity
	for _, list := range []corev1.ResourceList{domain.Resources.Requests, domain.Resources.Limits} {
		if q, ok := list[corev1.ResourceMemory]; ok && q.Sign() > 0 {
			guest = q.DeepCopy()
			break
		}
	}
	if guest.IsZero() {
		return
	}
	if domain.Memory == nil {
		domain.Memory = &v1.Memory{}
	}
	domain.Memory.Guest = &guest
}

// setRequests sets the requests of the guest's pod if only the cluster's settings have them. A guest with dedicated CPUs
// shares neither them nor its memory.
func setRequests(domain *v1.DomainSpec, settings clusterconfig.Settings) {
	if cpupinning.Dedicated(domain) {
		return
	}
	request := func(name corev1.ResourceName, q resource.Quantity) {
		_, requested := domain.Resources.Requests[name]
		limit, limited := domain.Resources.Limits[name]
		if requested || limited && q.Cmp(limit) > 0 {
			return
		}
		if domain.Resources.Requests == nil {
			domain.Resources.Requests = corev1.ResourceList{}
		}
		domain.Resources.Requests[name] = q
	}
	if q := settings.CPURequest; q != nil {
		request(corev1.ResourceCPU, q.DeepCopy())
	}
	// Huge pages can't be overcommitted.
	if m := domain.Memory; settings.MemoryOvercommit > 0 && settings.MemoryOvercommit != wholeMemory && m != nil && m.Guest != nil && m.Hugepages == nil {
		request(corev1.ResourceMemory, *resource.NewQuantity(m.Guest.Value()/int64(settings.MemoryOvercommit)*wholeMemory, resource.BinarySI))
	}
}

// wholeMemory is the memoryOvercommit of a guest whose pod requests all of its memory.
const wholeMemory = 100

func setDisks(spec *v1.VirtualMachineInstanceSpec) {
	devices := &spec.Domain.Devices
	hot, metrics := map[string]bool{}, map[string]bool{}
	for i := range spec.Volumes {
		hot[spec.Volumes[i].Name] = machine.Hotpluggable(&spec.Volumes[i])
		metrics[spec.Volumes[i].Name] = spec.Volumes[i].DownwardMetrics != nil
	}
	implied.Disks(spec)
	for i := range devices.Disks {
		device := &devices.Disks[i].DiskDevice
		v1.SetDefaults_DiskDevice(device)
		switch {
		case hot[devices.Disks[i].Name] && device.Disk != nil:
			device.Disk.Bus = machine.HotBus(&devices.Disks[i])
		case metrics[devices.Disks[i].Name] && device.Disk != nil && device.Disk.Bus == "":
			// SATA has no read-only disk. Upstream uses virtio, too.
			device.Disk.Bus = v1.DiskBusVirtio
		case device.Disk != nil:
			device.Disk.Bus = busOr(device.Disk.Bus)
		case device.LUN != nil && device.LUN.Bus == "":
			// SATA can't carry a LUN.
			device.LUN.Bus = v1.DiskBusSCSI
		case device.CDRom != nil:
			device.CDRom.Bus = busOr(device.CDRom.Bus)
			v1.SetDefaults_CDRomTarget(device.CDRom)
		}
	}
}

// SATA is KubeVirt's default, so that the guest of a KubeVirt manifest finds its disks under the same names.
func busOr(bus v1.DiskBus) v1.DiskBus {
	if bus == "" {
		return v1.DiskBusSATA
	}
	return bus
}
