package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/metrictable"
	"drydock.dev/drydock/internal/rules/snapshot/restore"
)

var (
	migrationStart = metrictable.Of("kubevirt_vmi_migration_start_time_seconds")
	migrationEnd   = metrictable.Of("kubevirt_vmi_migration_end_time_seconds")
	disksRestored  = metrictable.Of("kubevirt_vmsnapshot_disks_restored_from_source")
	bytesRestored  = metrictable.Of("kubevirt_vmsnapshot_disks_restored_from_source_bytes")
)

// collectMigrations returns the migrations' names. A migration whose target is being prepared counts as running.
func (c *Collector) collectMigrations(ctx context.Context, out chan<- prometheus.Metric) map[types.UID]string {
	var all v1.VirtualMachineInstanceMigrationList
	if !list(ctx, c, out, &all, migrationsPending) {
		return nil
	}
	names := map[types.UID]string{}
	unset, pending, scheduling, running := 0, 0, 0, 0
	for i := range all.Items {
		m := &all.Items[i]
		names[m.UID] = m.Name
		switch m.Status.Phase {
		case v1.MigrationPhaseUnset:
			unset++
		case v1.MigrationPending:
			pending++
		case v1.MigrationScheduling:
			scheduling++
		case v1.MigrationScheduled, v1.MigrationPreparingTarget, v1.MigrationTargetReady, v1.MigrationRunning:
			running++
		case v1.MigrationSucceeded:
			out <- migrationSucceeded.At(1, label(m.Spec.VMIName), m.Name, m.Namespace)
		case v1.MigrationFailed:
			out <- migrationFailed.At(1, label(m.Spec.VMIName), m.Name, m.Namespace)
		}
	}
	out <- migrationsUnset.At(float64(unset))
	out <- migrationsPending.At(float64(pending))
	out <- migrationsScheduling.At(float64(scheduling))
	out <- migrationsRunning.At(float64(running))
	return names
}

func collectLastMigration(out chan<- prometheus.Metric, vmi *v1.VirtualMachineInstance, names map[types.UID]string) {
	m := vmi.Status.MigrationState
	if m == nil {
		return
	}
	name := names[m.MigrationUID]
	if m.StartTimestamp != nil {
		out <- migrationStart.At(float64(m.StartTimestamp.Unix()), vmi.Status.NodeName, vmi.Namespace, vmi.Name, name)
	}
	if m.EndTimestamp != nil {
		out <- migrationEnd.At(float64(m.EndTimestamp.Unix()), vmi.Status.NodeName, vmi.Namespace, vmi.Name, name, outcome(m))
	}
}

func outcome(m *v1.VirtualMachineInstanceMigrationState) string {
	switch {
	case !m.Completed:
		return ""
	case m.Failed:
		return "failed"
	}
	return "succeeded"
}

func (c *Collector) collectSnapshots(ctx context.Context, out chan<- prometheus.Metric) {
	var all snapshotv1.VirtualMachineSnapshotList
	if !list(ctx, c, out, &all, snapshotSucceeded) {
		return
	}
	for i := range all.Items {
		s := &all.Items[i]
		if s.Status != nil && s.Status.Phase == snapshotv1.Succeeded && s.Status.CreationTime != nil {
			out <- snapshotSucceeded.At(float64(s.Status.CreationTime.Unix()), label(s.Spec.Source.Name), s.Name, s.Namespace)
		}
	}
}

// restored are the claims that were restored from a VM's snapshots.
type restored struct{ count, bytes float64 }

func (c *Collector) collectRestores(ctx context.Context, out chan<- prometheus.Metric) {
	var all corev1.PersistentVolumeClaimList
	if !list(ctx, c, out, &all, disksRestored) {
		return
	}
	sums := map[client.ObjectKey]restored{}
	for i := range all.Items {
		claim := &all.Items[i]
		name := restore.SourceOf(claim)
		if name == "" {
			continue
		}
		key := client.ObjectKey{Namespace: claim.Namespace, Name: name}
		sum := sums[key]
		sum.count++
		sum.bytes += claim.Spec.Resources.Requests.Storage().AsApproximateFloat64()
		sums[key] = sum
	}
	for vm, sum := range sums {
		out <- disksRestored.At(sum.count, vm.Name, vm.Namespace)
		out <- bytesRestored.At(sum.bytes, vm.Name, vm.Namespace)
	}
}
