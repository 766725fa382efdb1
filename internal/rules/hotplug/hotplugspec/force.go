package hotplugspec

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// ForcedAnnotation lists the volumes whose disks must be removed from the guest by force. It can be written only while the
// volume is Detaching, and ends with any change of the spec's volume of that name: it never forces a later removal.
const ForcedAnnotation = "drydock.dev/forced-volumes"

// Forced reports whether to remove a volume's disk by force.
func Forced(vmi *v1.VirtualMachineInstance, name string) bool {
	return detaching(vmi, name) && slices.Contains(names(vmi.Annotations[ForcedAnnotation]), name)
}

// NoteForced records that a volume's disk must be removed by force, after the guest was asked to release it.
func NoteForced(vmi *v1.VirtualMachineInstance, name string) error {
	switch list := names(vmi.Annotations[ForcedAnnotation]); {
	case statusOf(vmi, name) == nil:
		return &Refusal{"force out volume", name, "it does not exist"}
	case !detaching(vmi, name):
		return &Refusal{"force out volume", name, "it is not Detaching: remove it first, and force it out if the guest does not release it"}
	case !slices.Contains(list, name):
		writeNames(vmi, ForcedAnnotation, append(list, name))
	}
	return nil
}

// SettleForced drops the notes of removed volumes.
func SettleForced(vmi *v1.VirtualMachineInstance) {
	forget(vmi, func(name string) bool { return !detaching(vmi, name) })
}

// forgetForced drops a note whose volume is added or removed.
func forgetForced(vmi *v1.VirtualMachineInstance, name string) {
	forget(vmi, func(noted string) bool { return noted == name })
}

func forget(vmi *v1.VirtualMachineInstance, which func(string) bool) {
	if list := names(vmi.Annotations[ForcedAnnotation]); slices.ContainsFunc(list, which) {
		writeNames(vmi, ForcedAnnotation, slices.DeleteFunc(list, which))
	}
}

func detaching(vmi *v1.VirtualMachineInstance, name string) bool {
	s := statusOf(vmi, name)
	return s != nil && s.Phase == v1.HotplugVolumeDetaching
}

func statusOf(vmi *v1.VirtualMachineInstance, name string) *v1.VolumeStatus {
	for i := range vmi.Status.VolumeStatus {
		if s := &vmi.Status.VolumeStatus[i]; s.Name == name && s.HotplugVolume != nil {
			return s
		}
	}
	return nil
}
