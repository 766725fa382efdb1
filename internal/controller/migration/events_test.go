package migration

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration"
)

// Whoever cancels a migration knows about it: its end must cause no warning, neither on the migration nor on its VMI.
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

// A target pod that fits no node must be reported once, by the event that KubeVirt's clients wait for: when the
// migration begins to wait, and neither later nor when it fails for that reason.
func TestATargetPodThatFitsNowhereIsToldOnce(t *testing.T) {
	object := func(phase v1.VirtualMachineInstanceMigrationPhase, reason, message string) *v1.VirtualMachineInstanceMigration {
		m := &v1.VirtualMachineInstanceMigration{}
		m.Namespace, m.Spec.VMIName, m.Status.Phase = "shop", "web", phase
		if reason != "" {
			m.Status.Conditions = []v1.VirtualMachineInstanceMigrationCondition{
				{Type: migration.ConditionWaiting, Status: corev1.ConditionTrue, Reason: reason, Message: message}}
		}
		return m
	}
	told := []notice{{corev1.EventTypeWarning, "migrationTargetPodUnschedulable", "Migrate",
		"Migration target pod for VMI [shop/web] is currently unschedulable: no node has room"}}
	for name, c := range map[string]struct {
		from, to *v1.VirtualMachineInstanceMigration
		want     []notice
	}{
		"it begins to wait":            {object(v1.MigrationPending, "", ""), object(v1.MigrationScheduling, "Unschedulable", "no node has room"), told},
		"it waited for something else": {object(v1.MigrationPending, "BackOff", "later"), object(v1.MigrationScheduling, "Unschedulable", "no node has room"), told},
		"it goes on waiting":           {object(v1.MigrationScheduling, "Unschedulable", "no node has room"), object(v1.MigrationScheduling, "Unschedulable", "one node has none"), nil},
		"it waits for something else":  {object(v1.MigrationPending, "", ""), object(v1.MigrationPending, "BackOff", "later"), nil},
		"it has been found a node":     {object(v1.MigrationScheduling, "Unschedulable", "no node has room"), object(v1.MigrationScheduling, "", ""), nil},
		"it fails": {object(v1.MigrationScheduling, "", ""), object(v1.MigrationFailed, "Unschedulable", "no node has room"),
			[]notice{{corev1.EventTypeWarning, "FailedMigration", "Migrate", "The migration has failed: "}}},
	} {
		if diff := cmp.Diff(c.want, eventsOf(c.from, c.to), cmp.AllowUnexported(notice{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
