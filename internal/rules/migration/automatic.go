package migration

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/object/backoff"
)

// Automatic returns Drydock's own migration as admission would complete it. reason is an annotation.
func Automatic(vmi *v1.VirtualMachineInstance, reason, value, name string) *v1.VirtualMachineInstanceMigration {
	return &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vmi.Namespace, Name: name,
			Annotations: map[string]string{reason: value},
			Labels:      map[string]string{v1.MigrationSelectorLabel: layout.LabelValue(vmi.Name)},
			Finalizers:  []string{v1.VirtualMachineInstanceMigrationFinalizer},
		},
		Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: vmi.Name, Priority: new(v1.PrioritySystemMaintenance)},
	}
}

// MadeFor reports whether the migration is Drydock's own, for that reason. Users can write the annotation, but not the
// priority.
func MadeFor(m *v1.VirtualMachineInstanceMigration, reason string) bool {
	_, is := m.Annotations[reason]
	return is && m.Spec.Priority != nil && *m.Spec.Priority == v1.PrioritySystemMaintenance
}

// LastFor returns the UID of the newest automatic migration for the reason, "" for none. The next one's name contains it,
// so that each attempt has one name, whoever creates it.
func LastFor(of []*v1.VirtualMachineInstanceMigration, reason string) string {
	made := slices.DeleteFunc(slices.Clone(of), func(m *v1.VirtualMachineInstanceMigration) bool { return !MadeFor(m, reason) })
	if len(made) == 0 {
		return ""
	}
	return string(slices.MaxFunc(made, func(a, b *v1.VirtualMachineInstanceMigration) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	}).UID)
}

// Pause returns the remaining delay of the VMI's next automatic migration after failures, not positive for none.
func Pause(ofVMI []*v1.VirtualMachineInstanceMigration, now time.Time) time.Duration {
	var most failures
	for _, f := range failuresOf(ofVMI) {
		most = f
	}
	return most.left(now)
}

func (f failures) left(now time.Time) time.Duration {
	if f.count == 0 {
		return 0
	}
	return f.last.Add(backoff.Delay(firstBackOff, longestBackOff, f.count)).Sub(now)
}
