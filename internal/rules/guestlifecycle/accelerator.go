package guestlifecycle

import (
	"errors"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmistatus"
)

// UsesKVM reports whether a QEMU that is started at a node is to use KVM, which may be usable in
// its pod or not. A guest that starts takes KVM where it can; one that a migration brings goes on
// with what it runs with already, since no QEMU takes in the other's CPU state.
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
