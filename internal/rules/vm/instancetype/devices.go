package instancetype

import (
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"

	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/implied"
)

// Preferences also apply to devices that the VM has by default.
func devices(spec *v1.VirtualMachineInstanceSpec, p *instancetypev1.DevicePreferences, binding string) {
	if p == nil {
		return
	}
	d := &spec.Domain.Devices
	set(&d.AutoattachGraphicsDevice, p.PreferredAutoattachGraphicsDevice)
	set(&d.AutoattachMemBalloon, p.PreferredAutoattachMemBalloon)
	set(&d.AutoattachPodInterface, p.PreferredAutoattachPodInterface)
	set(&d.AutoattachSerialConsole, p.PreferredAutoattachSerialConsole)
	set(&d.AutoattachInputDevice, p.PreferredAutoattachInputDevice)
	set(&d.DisableHotplug, value(p.PreferredDisableHotplug))
	set(&d.UseVirtioTransitional, p.PreferredUseVirtioTransitional)
	set(&d.Rng, p.PreferredRng)
	set(&d.BlockMultiQueue, p.PreferredBlockMultiQueue)
	set(&d.NetworkInterfaceMultiQueue, p.PreferredNetworkInterfaceMultiQueue)
	set(&d.TPM, p.PreferredTPM)
	if p.PreferredVideoType != nil {
		set(&need(&d.Video).Type, *p.PreferredVideoType)
	}
	disks(spec, p)
	interfaces(spec, p, binding)
	peripherals(d, p)
}

func disks(spec *v1.VirtualMachineInstanceSpec, p *instancetypev1.DevicePreferences) {
	implied.Disks(spec)
	hot, metrics := map[string]bool{}, map[string]bool{}
	for i := range spec.Volumes {
		hot[spec.Volumes[i].Name] = machine.Hotpluggable(&spec.Volumes[i])
		metrics[spec.Volumes[i].Name] = spec.Volumes[i].DownwardMetrics != nil
	}
	for i := range spec.Domain.Devices.Disks {
		disk := &spec.Domain.Devices.Disks[i]
		v1.SetDefaults_DiskDevice(&disk.DiskDevice)
		switch {
		case disk.Disk != nil:
			// Other buses don't support hotplug, and SATA no read-only disk.
			if bus := p.PreferredDiskBus; !hot[disk.Name] && (!metrics[disk.Name] || bus != v1.DiskBusSATA) || bus == v1.DiskBusVirtio || bus == v1.DiskBusSCSI {
				set(&disk.Disk.Bus, bus)
			}
			if disk.Disk.Bus == v1.DiskBusVirtio {
				set(&disk.DedicatedIOThread, p.PreferredDiskDedicatedIoThread)
			}
			set(&disk.Cache, p.PreferredDiskCache)
			set(&disk.IO, p.PreferredDiskIO)
			set(&disk.BlockSize, p.PreferredDiskBlockSize.DeepCopy())
		case disk.LUN != nil:
			set(&disk.LUN.Bus, p.PreferredLunBus)
		case disk.CDRom != nil:
			set(&disk.CDRom.Bus, p.PreferredCdromBus)
		}
	}
}

// interfaces applies interface preferences. Masquerade is only for a pod network's interface without a binding.
func interfaces(spec *v1.VirtualMachineInstanceSpec, p *instancetypev1.DevicePreferences, binding string) {
	implied.Network(spec, binding)
	pod := map[string]bool{}
	for i := range spec.Networks {
		pod[spec.Networks[i].Name] = spec.Networks[i].Pod != nil
	}
	for i := range spec.Domain.Devices.Interfaces {
		iface := &spec.Domain.Devices.Interfaces[i]
		if pod[iface.Name] && iface.Binding == nil && iface.InterfaceBindingMethod == (v1.InterfaceBindingMethod{}) {
			iface.Masquerade = p.PreferredInterfaceMasquerade
		}
		if iface.SRIOV == nil {
			set(&iface.Model, p.PreferredInterfaceModel)
		}
	}
}

func peripherals(d *v1.Devices, p *instancetypev1.DevicePreferences) {
	implied.Input(d)
	for i := range d.Inputs {
		set(&d.Inputs[i].Bus, p.PreferredInputBus)
		set(&d.Inputs[i].Type, p.PreferredInputType)
	}
	if d.Sound != nil {
		set(&d.Sound.Model, p.PreferredSoundModel)
	}
	for i := range d.GPUs {
		set(&d.GPUs[i].VirtualGPUOptions, p.PreferredVirtualGPUOptions)
	}
	for i := range d.PanicDevices {
		set(&d.PanicDevices[i].Model, p.PreferredPanicDeviceModel)
	}
}
