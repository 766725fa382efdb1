package driver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/nichotplug"
	"drydock.dev/drydock/internal/rules/switchover"
)

// take runs the guest that has arrived. From before it on, nobody may say that it has never run. The source hears
// that it runs as soon as QEMU says so: its next answers are slow to come, since the guest is busy then.
func (d *Driver) take(ctx context.Context, s snapshot, o guestlifecycle.Observed) error {
	of := o.VMI.Status.MigrationState.MigrationUID
	d.log.Info("running the guest that has arrived", "migration", of)
	arrived := nichotplug.WithNICs(o.VMI, func(name string) bool { return s.guest.NICs.Present[name] })
	if err := d.env.Network.Connect(network.Pod{NetNS: s.attached.link.Peer.NetNS, Bindings: d.env.Settings().NetworkBindings}, arrived); err != nil {
		return fmt.Errorf("connecting the guest that has arrived to its networks: %w", err)
	}
	target, g := d.moving.target, s.attached.guest
	if target != nil {
		target.Unrun(false)
	}
	err := g.Take(ctx, of, func() error { return d.takeTPM(o.VMI, of) }, func() {
		if target != nil {
			target.Tell(switchover.Taken(s.migration.arrived).Tell)
		}
	})
	if err != nil {
		return err
	}
	g.Announce(ctx)
	return nil
}

// takeTPM has the next start find what the TPM knows that has come with the guest. The source can't go on any more
// when this is called, and the guest has not run here yet: until then both TPMs know the same (decision 442).
func (d *Driver) takeTPM(vmi *v1.VirtualMachineInstance, migration types.UID) error {
	if !machine.KeepsTPM(&vmi.Spec) {
		return nil
	}
	return disk.SetCurrentTPM(d.pod(), layout.IncomingTPM(string(migration)))
}

// doom has the next virt-handler know that a target is being ended.
func (d *Driver) doom(ctx context.Context, s *snapshot, o guestlifecycle.Observed) error {
	if s.attached == nil || o.VMI.Status.MigrationState == nil {
		return nil
	}
	return s.attached.guest.Doom(ctx, s.guest.Migration.Incoming)
}

// announceTarget makes the event of a target that can't be prepared: its virt-handler says nothing
// else to the VMI's owner, and virt-controller gives the migration up in time.
func (d *Driver) announceTarget(o guestlifecycle.Observed, s *snapshot) {
	if s.role == guestlifecycle.Destination && d.failures.step.attempts == reportAfter {
		d.env.Cluster.Event(o.VMI, corev1.EventTypeWarning, v1.SyncFailed.String(),
			fmt.Sprintf("The node %s can't take the guest yet: %v", d.env.Node, d.failures.visible()))
	}
}
