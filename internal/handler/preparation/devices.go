package preparation

import (
	"cmp"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/network/sriov"
	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

// Devices returns the node's devices for the VMI's interfaces that network-status names and that the kubelet gave to the
// launcher's container (decision 404).
func (p *Pod) Devices(vmi *v1.VirtualMachineInstance) (nichotplug.Devices, error) {
	if !sriov.Any(&vmi.Spec) {
		return nil, nil
	}
	environment, err := p.Link.Peer.Environment()
	if err != nil {
		return nil, fmt.Errorf("finding out which devices the launcher pod was given: %w", err)
	}
	return p.Env.Devices().Among(sriov.Given(environment)), nil
}

// hostDevices returns the PCI addresses of the devices that the kubelet gave to the launcher's container, by the spec's
// devices (decision 405).
func (p *Pod) hostDevices(vmi *v1.VirtualMachineInstance) (map[string]string, error) {
	if !hostdevice.Any(&vmi.Spec) {
		return nil, nil
	}
	environment, err := p.Link.Peer.Environment()
	if err != nil {
		return nil, fmt.Errorf("finding out which devices the launcher pod was given: %w", err)
	}
	return hostdevice.Assign(&vmi.Spec, environment)
}

// raiseMemlockLimit raises the memory lock limit before QEMU's start if the guest may get devices of the node: QEMU keeps
// its limits, and the launcher's container can't raise them. boot is the memory at the guest's start on another node, in
// bytes; 0 for a fresh start.
func (p *Pod) raiseMemlockLimit(vmi *v1.VirtualMachineInstance, boot int64) error {
	if !machine.MayHaveDevices(&vmi.Spec) {
		return nil
	}
	err := p.Link.Peer.LetLock(uint64(machine.LockedMemory(&vmi.Spec, cmp.Or(boot, machine.GuestMemory(&vmi.Spec)))))
	if errors.Is(err, unix.EPERM) {
		// CAP_SYS_RESOURCE is missing. QEMU reports a limit that is too low.
		p.Env.Log.Info("virt-handler can't let QEMU lock its guest's memory", "reason", err.Error())
		return nil
	}
	return err
}
