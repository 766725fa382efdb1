// Package outgoing is the source's side of a migration, from the first connection to the target's virt-handler until
// virt-launcher is told to end the QEMU that the guest has left.
//
//	Sync              opens and closes the connection to the target
//	Observe           collects the facts                   -> seen
//	Decide            is pure: it calls package switchover -> decision
//	Tell              sends the target its part of the decision
//	SetDowntimeLimit  sets QEMU's limit
//	Act               takes the decided step, if it is its turn
//
// The driver calls them in this order in each round. Only the last three, and Sync, have an effect. Observe records when
// it first saw something, because neither QEMU nor the target does.
//
// It owns the state of one migration of one VMI. It must not write a status, and must not decide when a step is taken:
// the driver does. It stores nothing for the next virt-handler, which finds QEMU's markers.
package outgoing

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/handler/connection"
	"drydock.dev/drydock/internal/handler/guest/diskcopy"
	"drydock.dev/drydock/internal/handler/guest/handover"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Env has a Migration's dependencies.
type Env struct {
	migration.Env
	// Event sends an event of the VMI. It never fails or blocks.
	Event func(vmi *v1.VirtualMachineInstance, eventType, reason, message string)
	// Migrated gets the cost of a migration that has succeeded; may be nil.
	Migrated func(metrics.Migrated)
}

// Migration is the migration of a VMI away from the node, if there is one. Only one goroutine calls its methods.
type Migration struct {
	env Env // other goroutines read it, too
	current
}

// current is the state of one migration.
type current struct {
	of      types.UID
	address string
	// source is nil without a connection to the target.
	source             *migration.Source
	recovery           migration.Recovery
	stopped, announced bool // events that were sent: of the guest's stop and of its arrival
}

// New returns a Migration that has not begun.
func New(env Env) *Migration { return &Migration{env: env} }

// Close ends the connection to the target.
func (m *Migration) Close() {
	if m.source != nil {
		m.source.Close()
	}
}

// HasConnection reports whether there is a connection, or an attempt at one, to the target's virt-handler.
func (m *Migration) HasConnection() bool { return m.source != nil }

// QEMU is the QEMU that sends the guest.
type QEMU struct {
	Source handover.Source
	Copies diskcopy.Copies
	Link   *connection.Link
	Images map[string]launch.PreparedImage // of its start
	Memory func() vmihandler.Memory        // the last known state of plugged memory
}

// Sync opens the connection to the target of the VMI's migration, and closes any other. state is nil if there is no
// migration; here means that this node is its source. q is nil if there is no QEMU.
func (m *Migration) Sync(ctx context.Context, vmi *v1.VirtualMachineInstance, state *v1.VirtualMachineInstanceMigrationState, here bool, q *QEMU) {
	if state == nil || m.of != state.MigrationUID {
		m.Close()
		m.current = current{}
	}
	if state == nil {
		return
	}
	m.of = state.MigrationUID
	if here {
		m.connect(ctx, vmi, state, q)
	}
}

func (m *Migration) connect(ctx context.Context, vmi *v1.VirtualMachineInstance, state *v1.VirtualMachineInstanceMigrationState, q *QEMU) {
	if m.source != nil && m.address != state.TargetNodeAddress && !m.source.Shielded() {
		// The target's virt-handler has restarted at another address, and its streams have ended.
		m.source.Close()
		m.source = nil
	}
	if m.source != nil || state.TargetNodeAddress == "" || q == nil {
		return
	}
	source, err := migration.NewSource(ctx, m.env.Env, migration.IDOf(vmi, state), state.TargetNode, state.TargetNodeAddress)
	if err != nil {
		m.env.Log.Info("the migration has no way to its target", "migration", state.MigrationUID, "reason", err.Error())
		return
	}
	source.Offer(switchover.OfferOf(limitsOf(vmi, q.Images, true), machine.GuestMemory(&vmi.Spec), m.env.CPUs))
	m.source, m.address = source, state.TargetNodeAddress
}
