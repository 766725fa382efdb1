package migration

import (
	"slices"

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

// release takes what is left of a migration that has failed off the VMI, so that the
// target's virt-handler lets go of it.
func (d *decision) release() {
	vmi, ms := d.o.VMI, d.state()
	if ms == nil || !ms.Failed || vmi.IsFinal() {
		return
	}
	_, labeled := vmi.Labels[v1.MigrationTargetNodeNameLabel]
	for uid, node := range vmi.Status.ActivePods {
		// The source is never on the target's node.
		if node == ms.TargetNode && node != vmi.Status.NodeName {
			d.p.VMI.Ended = append(d.p.VMI.Ended, uid)
		}
	}
	slices.Sort(d.p.VMI.Ended)
	d.p.VMI.Release = labeled || len(d.p.VMI.Ended) > 0
}
