// Package dumpspace owns how much space a dump of a guest's memory needs. It imports only API types, for virtctl.
package dumpspace

import v1 "kubevirt.io/api/core/v1"

// Overhead is the space beside the guest's memory, in bytes: ELF headers, and the memory of firmware and devices.
const Overhead = 100 << 20

// Of returns the bytes that a dump of the guest may need.
func Of(vmi *v1.VirtualMachineInstance) int64 {
	var memory int64
	if m := vmi.Spec.Domain.Memory; m != nil && m.Guest != nil {
		memory = m.Guest.Value()
	}
	if has := vmi.Status.Memory; has != nil {
		if has.GuestCurrent != nil {
			memory = max(memory, has.GuestCurrent.Value())
		}
		if has.GuestRequested != nil {
			memory = max(memory, has.GuestRequested.Value())
		}
	}
	return memory + Overhead
}

// Claim returns the bytes of a claim for a dump: a file system keeps some for itself.
func Claim(vmi *v1.VirtualMachineInstance) int64 {
	const step = 1 << 20
	need := Of(vmi) / 10 * 11
	return (need + step - 1) / step * step
}
