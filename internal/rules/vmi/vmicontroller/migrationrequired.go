package vmicontroller

import (
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/migration/migrationrequired"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// decideRequired plans the changes that a running guest's pod can take; others set MigrationRequired. It waits while the
// guest may be in either of two pods.
func (d *decision) decideRequired() {
	o := &d.o
	switch {
	case o.VMI.Status.Phase != v1.Running, o.VMI.DeletionTimestamp != nil, d.p.Needs != "", d.facts.End != nil,
		d.facts.Migration.Arrived != nil, migration.InFlight(o.VMI):
		return
	case o.Pod == nil, podstatus.Terminal(o.Pod), o.Pod.DeletionTimestamp != nil, launcherpod.BondOf(o.Pod, o.VMI) != launcherpod.Chosen:
		return
	}
	if d.resize(); d.p.Needs != "" {
		return
	}
	if networks, changes := nichotplug.Networks(o.VMI, o.Pod); changes {
		d.p.Networks = &networks
	}
	c, after := migrationrequired.Decide(append(nichotplug.Needs(o.VMI, o.Pod), d.noRoom...),
		condition.Find(o.VMI.Status.Conditions, v1.VirtualMachineInstanceMigrationRequired),
		migrationrequired.Guest{Immovable: migration.Movable(o.VMI), Stays: o.GuestsStay}, o.Now)
	d.facts.MigrationRequired = vmistatus.Known(c)
	d.requeueAfter(after)
}
