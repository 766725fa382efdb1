package migration

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/objectevent"
)

// handOver has the VMI name the migration and its target pod: from then on the virt-handlers
// of both nodes work on it.
func (d *decision) handOver() {
	o := &d.o
	vmi := d.changeVMI()
	node := o.Target.Spec.NodeName
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
		MigrationUID: o.Migration.UID, SourceNode: vmi.Status.NodeName, SourcePod: o.Source.Name,
		TargetNode: node, TargetPod: o.Target.Name,
		MigrationConfiguration: o.Configuration.MigrationConfiguration.DeepCopy(),
	}
	if policy := o.Configuration.Policy; policy != "" {
		vmi.Status.MigrationState.MigrationPolicyName = &policy
	}
	if vmi.Status.ActivePods == nil {
		vmi.Status.ActivePods = map[types.UID]string{}
	}
	vmi.Status.ActivePods[o.Target.UID] = node
	if vmi.Labels == nil {
		vmi.Labels = map[string]string{}
	}
	vmi.Labels[v1.MigrationTargetNodeNameLabel] = node
	d.goOn()
	d.enter(v1.MigrationPreparingTarget)
	d.lookAgain(o.Now.Add(preparationLimit))
}

// changeVMI returns the VMI as it is to be patched.
func (d *decision) changeVMI() *v1.VirtualMachineInstance {
	if d.p.VMI == nil {
		vmi := *d.o.VMI
		d.o.VMI.ObjectMeta.DeepCopyInto(&vmi.ObjectMeta)
		d.o.VMI.Status.DeepCopyInto(&vmi.Status)
		d.p.VMI = &vmi
	}
	return d.p.VMI
}

// stop ends a migration that the VMI has been handed over with: at once if nothing of the
// guest has moved, else by asking the source's virt-handler.
func (d *decision) stop(reason string) {
	ms := d.state()
	if ms.StartTimestamp == nil {
		failed := d.changeVMI().Status.MigrationState
		failed.Failed, failed.FailureReason, failed.EndTimestamp = true, objectevent.Fit(reason), d.now()
		if d.o.Migration.DeletionTimestamp != nil {
			failed.AbortRequested, failed.AbortStatus = true, v1.MigrationAbortSucceeded
		}
		d.release()
		d.abortRequested(reason)
		d.end(v1.MigrationFailed)
		d.tidy()
		return
	}
	d.enter(v1.MigrationRunning)
	d.abortRequested(reason)
	if !ms.AbortRequested {
		d.changeVMI().Status.MigrationState.AbortRequested = true
	}
}

// release takes the target pod of a migration that has failed off the VMI, so that the
// target's virt-handler lets go of it.
func (d *decision) release() {
	vmi, ms := d.o.VMI, d.state()
	if vmi.IsFinal() {
		return
	}
	if vmi.Labels[v1.MigrationTargetNodeNameLabel] != "" {
		delete(d.changeVMI().Labels, v1.MigrationTargetNodeNameLabel)
	}
	for uid, node := range vmi.Status.ActivePods {
		// The source is never on the target's node.
		if node == ms.TargetNode && node != vmi.Status.NodeName {
			delete(d.changeVMI().Status.ActivePods, uid)
		}
	}
}

// now is the decision's time as the API server keeps it, in whole seconds.
func (d *decision) now() *metav1.Time {
	now := metav1.NewTime(d.o.Now.Truncate(time.Second))
	return &now
}
