package migration

import (
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/object/objectevent"
)

// handOver hands the migration over to both nodes' virt-handlers.
func (d *decision) handOver() {
	o := &d.o
	d.p.VMI.Begin = &Begin{
		UID: o.Migration.UID, SourceNode: o.VMI.Status.NodeName, SourcePod: o.Source.Name,
		TargetNode: o.Target.Spec.NodeName, TargetPod: o.Target.Name, TargetPodUID: o.Target.UID,
		PolicyName: o.Configuration.Policy, Configuration: o.Configuration.DeepCopy(),
	}
	d.clearWaiting()
	d.enter(v1.MigrationPreparingTarget)
	d.requeueAt(o.Now.Add(preparationLimit))
}

// stop ends a handed-over migration: at once before anything was sent, else by a request to the source's virt-handler.
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

// Orphaned returns the VMI's facts about a handed-over migration whose object is gone: users can remove the finalizer.
// They are zero if the migration has ended or its abort was requested.
func Orphaned(vmi *v1.VirtualMachineInstance, migration types.UID) Told {
	ms := vmi.Status.MigrationState
	switch {
	case !switchover.Open(ms), ms.MigrationUID != migration, ms.AbortRequested, vmi.IsFinal():
		return Told{}
	case ms.StartTimestamp == nil:
		return Told{Abort: true, Failure: canceled}
	}
	return Told{Abort: true}
}
