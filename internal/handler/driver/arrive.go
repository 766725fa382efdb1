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
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// From just before the arrived guest resumes, nobody may report that it never ran here. The source is told as soon as
// QEMU reports the start, since the busy guest delays QEMU's next answers.
func (d *Driver) runArrivedGuest(ctx context.Context, s snapshot, o vmihandler.Observed) error {
	of := o.VMI.Status.MigrationState.MigrationUID
	d.log.Info("running the guest that has arrived", "migration", of)
	has := s.attached.nics.Present()
	arrived := nichotplug.WithNICs(o.VMI, func(name string) bool { return has[name] })
	if err := d.env.Network.Connect(network.Pod{NetNS: s.attached.link.Peer.NetNS, Bindings: d.env.Settings().NetworkBindings}, arrived); err != nil {
		return fmt.Errorf("connecting the guest that has arrived to its networks: %w", err)
	}
	target, g := d.moving.target, s.attached.guest
	if target != nil {
		target.Unrun(false)
	}
	err := g.Take(ctx, of, func() error { return d.useIncomingTPM(o.VMI, of) }, func() {
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

// useIncomingTPM makes the next start use the TPM state that came with the guest. Call it when the source can't resume
// any more and the guest has not run here yet: until then both copies are equal (decision 442).
func (d *Driver) useIncomingTPM(vmi *v1.VirtualMachineInstance, migration types.UID) error {
	if !machine.KeepsTPM(&vmi.Spec) {
		return nil
	}
	return disk.SetCurrentTPM(d.pod(), layout.IncomingTPM(string(migration)))
}

// announceTarget reports a target that can't be prepared, for which virt-handler writes no status; virt-controller
// gives the migration up in time.
func (d *Driver) announceTarget(o vmihandler.Observed, s *snapshot) {
	if s.role == vmihandler.Destination && d.failures.step.attempts == reportAfter {
		d.env.Cluster.Event(o.VMI, corev1.EventTypeWarning, v1.SyncFailed.String(),
			fmt.Sprintf("The node %s can't take the guest yet: %v", d.env.Node, d.failures.visible()))
	}
}
