package driver

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

func (d *Driver) announceMigrated(s *snapshot, vmi *v1.VirtualMachineInstance) {
	if d.moving.announced {
		return
	}
	d.moving.announced = true
	m, cost := vmi.Status.MigrationState, migration.Cost{Sent: int64(s.guest.Migration.Progress.Transferred)}
	if d.moving.source != nil {
		cost = d.moving.source.Cost(s.guest.Stopped, cost.Sent)
	}
	d.env.Cluster.Event(vmi, corev1.EventTypeNormal, v1.Migrated.String(), cost.Message(m.SourceNode, m.TargetNode))
	if d.env.Migrated != nil {
		d.env.Migrated(metrics.Migrated{Duration: cost.Total, Downtime: cost.Downtime, SentBytes: float64(cost.Sent)})
	}
}

const reasonStopped = "StoppedToMigrate"

func (d *Driver) announceStop(vmi *v1.VirtualMachineInstance, why string) {
	if d.moving.stopped {
		return
	}
	d.moving.stopped = true
	d.env.Cluster.Event(vmi, corev1.EventTypeNormal, reasonStopped, why)
}

// notConvergingMessage also names a missing feature that would have kept the guest running.
func (d *Driver) notConvergingMessage(vmi *v1.VirtualMachineInstance) string {
	m, source := vmi.Status.MigrationState, d.moving.source
	said := fmt.Sprintf("The guest changes its memory faster than it is sent to node %s: it is stopped until it has arrived there", m.TargetNode)
	if switchover.LimitsOf(m.VMIMConfigurationOptions, machine.GuestMemory(&vmi.Spec)).PostCopy && source != nil && !source.Transport().PostCopy {
		said += ". Post-copy is allowed, but QEMU there cannot do with it: its launcher pod has no userfaultfd"
	}
	return said
}

// losesWritesMessage is for an emulated guest with plugged memory (decision 398).
func losesWritesMessage(vmi *v1.VirtualMachineInstance) string {
	return fmt.Sprintf("The guest is emulated and has memory that was plugged, whose changes QEMU may not notice: it is stopped until it has arrived on node %s",
		vmi.Status.MigrationState.TargetNode)
}
