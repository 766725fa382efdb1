package migration

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration"
)

// Who cancels a migration knows: that it ends is nothing to be warned of, on the migration and on its VMI.
func TestACanceledMigrationWarnsOfNothing(t *testing.T) {
	m := &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	failed := m.DeepCopy()
	failed.Status.Phase = v1.MigrationFailed
	failed.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{FailureReason: "why"}
	gone := func(m *v1.VirtualMachineInstanceMigration) *v1.VirtualMachineInstanceMigration {
		m = m.DeepCopy()
		m.DeletionTimestamp = &metav1.Time{}
		return m
	}
	ends := migration.Told{Failure: "why"}
	for name, c := range map[string]struct{ got, want []notice }{
		"it fails": {eventsOf(m, failed), []notice{{corev1.EventTypeWarning, "FailedMigration", "Migrate", "The migration has failed: why"}}},
		"it is canceled": {eventsOf(gone(m), gone(failed)),
			[]notice{{corev1.EventTypeNormal, "SuccessfulAbortMigration", "AbortMigration", "The migration was canceled"}}},
		"it fails, on its VMI": {eventsOfVMI(m, ends), []notice{{corev1.EventTypeWarning, "Migrated", "Migrate", "The migration m has failed: why"}}},
		"it is canceled, on its VMI": {eventsOfVMI(gone(m), ends),
			[]notice{{corev1.EventTypeNormal, "Migrated", "Migrate", "The migration m was canceled"}}},
		"its VMI is told nothing": {eventsOfVMI(gone(m), migration.Told{Abort: true}), nil},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, c.got, c.want)
		}
	}
}
