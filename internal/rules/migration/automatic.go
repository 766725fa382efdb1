package migration

import (
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
