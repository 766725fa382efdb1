package hotplug

import "drydock.dev/drydock/internal/rules/hotplug/hotplugspec"

// ReservedRefusal is the message for a user who writes one of the reserved annotations.
const ReservedRefusal = "only Drydock's components keep this record of a VMI's volumes"

// ReservedAnnotations returns the annotations that users must not write: the guest's disks depend on them.
func ReservedAnnotations() []string {
	return []string{RecordAnnotation, hotplugspec.RemovedAnnotation, hotplugspec.ForcedAnnotation}
}
