// Package memorydump decides about the dumps of a running guest's memory to claims: which request is accepted (Ask), the
// request's way through the VM's status and the VMI's utility volumes (Decide), and virt-handler's steps (DecideOnNode).
// docs/memory-dump.md has the states, the owner of each field, and the effect of each failure.
//
// It must not import a client, do I/O or read the clock. Package hotplug decides about the attachment pods.
package memorydump

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

const (
	suffix        = ".memory.dump"
	partialSuffix = ".partial"
	timeFormat    = "20060102-150405.000000" // two dumps have two names
	// longestName bounds the VM's part of a file's name, which has at most 255 bytes.
	longestName = 120
	// longestClaim is that of a pod's volume, which has the claim's name.
	longestClaim = 63
)

// FileName returns the name of a dump that begins now.
func FileName(vmi, claim string, now time.Time) string {
	return prefix(vmi, claim) + now.UTC().Format(timeFormat) + suffix
}

// Partial returns the name of a file before it is complete.
func Partial(file string) string { return file + partialSuffix }

// IsOf reports whether a file is a dump of the VMI in the claim, complete or not.
func IsOf(vmi, claim, file string) bool {
	middle, ok := strings.CutPrefix(strings.TrimSuffix(file, partialSuffix), prefix(vmi, claim))
	if !ok {
		return false
	}
	at, ok := strings.CutSuffix(middle, suffix)
	_, err := time.Parse(timeFormat, at)
	return ok && err == nil
}

func prefix(vmi, claim string) string {
	return vmi[:min(len(vmi), longestName)] + "-" + claim[:min(len(claim), longestClaim)] + "-"
}

// VolumeOf returns the VMI's utility volume of a name, nil for none.
func VolumeOf(vmi *v1.VirtualMachineInstance, name string) *v1.UtilityVolume {
	for i := range vmi.Spec.UtilityVolumes {
		if v := &vmi.Spec.UtilityVolumes[i]; v.Name == name {
			return v
		}
	}
	return nil
}

// StatusOf returns the status of a memory dump's volume, nil for none.
func StatusOf(vmi *v1.VirtualMachineInstance, name string) *v1.VolumeStatus {
	for i := range vmi.Status.VolumeStatus {
		if s := &vmi.Status.VolumeStatus[i]; s.Name == name && s.MemoryDumpVolume != nil {
			return s
		}
	}
	return nil
}

// Of reports whether the VMI has a memory dump's volume, or is losing one.
func Of(vmi *v1.VirtualMachineInstance) bool {
	return len(vmi.Spec.UtilityVolumes) > 0 ||
		slices.ContainsFunc(vmi.Status.VolumeStatus, func(s v1.VolumeStatus) bool { return s.MemoryDumpVolume != nil })
}

// Occupied returns why no disk can be plugged by a name, "" for no reason: a memory dump has it.
func Occupied(vmi *v1.VirtualMachineInstance, name string) string {
	if VolumeOf(vmi, name) == nil && StatusOf(vmi, name) == nil {
		return ""
	}
	return fmt.Sprintf("the guest's memory is being dumped to the PVC [%s]: wait until that has ended", name)
}

// UnderWay reports whether the guest may be standing still for a dump, or may come to: nothing else may stop it and let it
// continue.
func UnderWay(vm *v1.VirtualMachine) bool {
	r := vm.Status.MemoryDumpRequest
	if r == nil {
		return false
	}
	// A removal may come in the middle of a dump.
	return r.Phase == v1.MemoryDumpAssociating || r.Phase == v1.MemoryDumpInProgress || r.Phase == v1.MemoryDumpDissociating
}
