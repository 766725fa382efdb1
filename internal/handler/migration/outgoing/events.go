package outgoing

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

func (m *Migration) announceMigrated(known *guest.Facts, vmi *v1.VirtualMachineInstance) {
	if m.announced {
		return
	}
	m.announced = true
	state, cost := vmi.Status.MigrationState, migration.Cost{Sent: int64(known.Migration.Progress.Transferred)}
	if m.source != nil {
		cost = m.source.Cost(known.Stopped, cost.Sent)
	}
	m.env.Event(vmi, corev1.EventTypeNormal, v1.Migrated.String(), cost.Message(state.SourceNode, state.TargetNode))
	if m.env.Migrated != nil {
		m.env.Migrated(metrics.Migrated{Duration: cost.Total, Downtime: cost.Downtime, SentBytes: float64(cost.Sent)})
	}
}

// ReasonStopped is the event reason for a guest that is stopped until it has arrived.
const ReasonStopped = "StoppedToMigrate"

func (m *Migration) announceStop(vmi *v1.VirtualMachineInstance, why string) {
	if m.stopped {
		return
	}
	m.stopped = true
	m.env.Event(vmi, corev1.EventTypeNormal, ReasonStopped, why)
}

// notConvergingMessage also names the missing feature that would have kept the guest running.
func (m *Migration) notConvergingMessage(vmi *v1.VirtualMachineInstance) string {
	state, source := vmi.Status.MigrationState, m.source
	said := fmt.Sprintf("The memory of the guest could not be sent to node %s in time while it ran: it is stopped until it has arrived there", state.TargetNode)
	if switchover.LimitsOf(state.VMIMConfigurationOptions, machine.GuestMemory(&vmi.Spec)).PostCopy && source != nil && !source.Transport().PostCopy {
		why := "QEMU there cannot do with it: its launcher pod has no userfaultfd"
		if machine.HasShares(&vmi.Spec) {
			why = "the guest shares folders (spec.domain.devices.filesystems), whose programs cannot wait for memory"
		}
		said += ". Post-copy is allowed, but " + why
	}
	return said
}

// losesWritesMessage is for an emulated guest with plugged memory (decision 398).
func losesWritesMessage(vmi *v1.VirtualMachineInstance) string {
	return fmt.Sprintf("The guest is emulated and has memory that was plugged, whose changes QEMU may not notice: it is stopped until it has arrived on node %s",
		vmi.Status.MigrationState.TargetNode)
}
