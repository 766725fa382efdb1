package migration

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration"
)

// notice is an event of a migration or a VMI. The reasons are KubeVirt's.
type notice struct{ kind, reason, action, message string }

func (r *Reconciler) record(of, about runtime.Object, e notice) {
	r.Recorder.Eventf(of, about, e.kind, e.reason, e.action, "%s", e.message)
}

func eventsOf(from, to *v1.VirtualMachineInstanceMigration) []notice {
	switch {
	case from.IsFinal():
		return nil
	case migration.Unschedulable(from) == "" && migration.Unschedulable(to) != "":
		return []notice{{corev1.EventTypeWarning, "migrationTargetPodUnschedulable", "Migrate", fmt.Sprintf(
			"Migration target pod for VMI [%s/%s] is currently unschedulable: %s", to.Namespace, to.Spec.VMIName, migration.Unschedulable(to))}}
	case to.Status.Phase == v1.MigrationSucceeded:
		return []notice{{corev1.EventTypeNormal, "SuccessfulMigration", "Migrate", "The guest runs on node " + to.Status.MigrationState.TargetNode}}
	case to.Status.Phase == v1.MigrationFailed && to.DeletionTimestamp != nil:
		return []notice{{corev1.EventTypeNormal, "SuccessfulAbortMigration", "AbortMigration", "The migration was canceled"}}
	case to.Status.Phase == v1.MigrationFailed:
		reason := ""
		if ms := to.Status.MigrationState; ms != nil {
			reason = ms.FailureReason
		}
		return []notice{{corev1.EventTypeWarning, "FailedMigration", "Migrate", "The migration has failed: " + reason}}
	case !from.TargetIsHandedOff() && to.TargetIsHandedOff():
		return []notice{{corev1.EventTypeNormal, "SuccessfulHandOver", "HandOver", "Migration target pod is ready for preparation by virt-handler"}}
	}
	return nil
}

// virt-handler emits the events about progress and end.
func eventsOfVMI(m *v1.VirtualMachineInstanceMigration, told migration.Told) []notice {
	switch {
	case told.Begin != nil:
		return []notice{{corev1.EventTypeNormal, string(v1.PreparingTarget), "HandOver",
			fmt.Sprintf("Migrating from node %s to node %s (migration %s)", told.Begin.SourceNode, told.Begin.TargetNode, m.Name)}}
	case told.Failure != "" && m.DeletionTimestamp != nil:
		return []notice{{corev1.EventTypeNormal, string(v1.Migrated), "Migrate", fmt.Sprintf("The migration %s was canceled", m.Name)}}
	case told.Failure != "":
		return []notice{{corev1.EventTypeWarning, string(v1.Migrated), "Migrate", fmt.Sprintf("The migration %s has failed: %s", m.Name, told.Failure)}}
	}
	return nil
}
