package migration

import (
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/objectevent"
)

// handOver has the VMI name the migration and its target pod: from then on the virt-handlers
// of both nodes work on it.
func (d *decision) handOver() {
	o := &d.o
	d.p.VMI.Begin = &Begin{
		UID: o.Migration.UID, SourceNode: o.VMI.Status.NodeName, SourcePod: o.Source.Name,
		TargetNode: o.Target.Spec.NodeName, TargetPod: o.Target.Name, TargetPodUID: o.Target.UID,
		PolicyName: o.Configuration.Policy, Configuration: o.Configuration.DeepCopy(),
	}
	d.goOn()
	d.enter(v1.MigrationPreparingTarget)
	d.lookAgain(o.Now.Add(preparationLimit))
}

// stop ends a migration that the VMI has been handed over with: at once if nothing of the
// guest has been sent, else by asking the source's virt-handler. Either is seen in the VMI's
// status.
func (d *decision) stop(reason string) {
	reason = objectevent.Fit(reason)
	ms := d.state()
	d.enter(phaseOf(ms))
	if ms.StartTimestamp == nil {
		d.p.VMI.Failure, d.p.VMI.Abort = reason, d.o.Migration.DeletionTimestamp != nil
		return
	}
	d.abortRequested(reason)
	d.p.VMI.Abort = !ms.AbortRequested
}

// Orphaned returns what a VMI is told of a migration whose object is gone, and which it was handed over with: the
// finalizer is anybody's to take off who may migrate, and nobody would end such a migration. It is the zero
// value when the VMI knows, or the migration has ended.
func Orphaned(vmi *v1.VirtualMachineInstance, migration types.UID) Told {
	ms := vmi.Status.MigrationState
	switch {
	case ms == nil, ms.MigrationUID != migration, ms.Completed, ms.Failed, ms.AbortRequested, vmi.IsFinal():
		return Told{}
	case ms.StartTimestamp == nil:
		return Told{Abort: true, Failure: canceled}
	}
	return Told{Abort: true}
}
