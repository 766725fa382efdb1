package vmihandler

import (
	"errors"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// UsesKVM reports whether QEMU uses KVM, if usable. A migrated guest keeps its accelerator: QEMU can't convert the CPU
// state between KVM and emulation.
func UsesKVM(vmi *v1.VirtualMachineInstance, at Role, usable bool) (bool, error) {
	kvm, known := vmistatus.RunsWithKVM(vmi)
	switch {
	case at != Destination || !known:
		return usable, nil
	case kvm && !usable:
		return false, errors.New("the guest runs with KVM, which its pod on this node can't use: see the node's label drydock.dev/kvm and its events")
	}
	return kvm, nil
}
