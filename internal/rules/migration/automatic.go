package migration

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/backoff"
)

// Automatic returns a migration that Drydock itself asks for: reason is the annotation that
// says for what, with its value. It is as admission leaves one.
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

// MadeFor reports whether Drydock asked for a migration for a reason. Whoever may migrate can write the
// annotation, and nobody else the priority.
func MadeFor(m *v1.VirtualMachineInstanceMigration, reason string) bool {
	_, is := m.Annotations[reason]
	return is && m.Spec.Priority != nil && *m.Spec.Priority == v1.PrioritySystemMaintenance
}

// LastFor is the UID of the newest migration that Drydock asked for for a reason, "" for none. It goes into
// the name of the next one: each attempt has another, which is the same for whoever makes it.
func LastFor(of []*v1.VirtualMachineInstanceMigration, reason string) string {
	made := slices.DeleteFunc(slices.Clone(of), func(m *v1.VirtualMachineInstanceMigration) bool { return !MadeFor(m, reason) })
	if len(made) == 0 {
		return ""
	}
	return string(slices.MaxFunc(made, func(a, b *v1.VirtualMachineInstanceMigration) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	}).UID)
}

// Pause is how long the next migration that Drydock asks for has to wait for those of the
// same VMI that have failed; none when it is not more than zero.
func Pause(ofVMI []*v1.VirtualMachineInstanceMigration, now time.Time) time.Duration {
	var most failures
	for _, f := range failuresOf(ofVMI) {
		most = f
	}
	return most.left(now)
}

// left is how long they keep the next one waiting.
func (f failures) left(now time.Time) time.Duration {
	if f.count == 0 {
		return 0
	}
	return f.last.Add(backoff.Delay(firstBackOff, longestBackOff, f.count)).Sub(now)
}
