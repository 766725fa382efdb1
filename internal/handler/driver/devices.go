package driver

import (
	"cmp"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/nichotplug"
	"drydock.dev/drydock/internal/rules/sriov"
)

// devices are the devices of the node that the pod has for interfaces of the VMI: those that network-status names,
// and that the kubelet has given to the launcher's container. See decision 404.
func (d *Driver) devices(vmi *v1.VirtualMachineInstance, launcher *podpath.Peer) (nichotplug.Devices, error) {
	if !sriov.Any(&vmi.Spec) {
		return nil, nil
	}
	environment, err := launcher.Environment()
	if err != nil {
		return nil, fmt.Errorf("finding out which devices the launcher pod was given: %w", err)
	}
	return d.presence.Devices().Among(sriov.Given(environment)), nil
}

// letLock lets the QEMU that virt-launcher is about to start lock its guest's memory, if the guest has devices of the node, or may
// get some while it runs: QEMU's limits stay those that it was started with. The launcher's container can't raise them.
// boot is how much memory the guest was started with elsewhere, 0 for a guest that starts.
func (d *Driver) letLock(vmi *v1.VirtualMachineInstance, boot int64) error {
	if !sriov.Any(&vmi.Spec) {
		return nil
	}
	err := d.link.Peer.LetLock(uint64(machine.LockedMemory(&vmi.Spec, cmp.Or(boot, machine.GuestMemory(&vmi.Spec)))))
	if errors.Is(err, unix.EPERM) {
		// Without CAP_SYS_RESOURCE. Whether the limit that there is will do, QEMU finds out, and says.
		d.log.Info("virt-handler can't let QEMU lock its guest's memory", "reason", err.Error())
		return nil
	}
	return err
}
