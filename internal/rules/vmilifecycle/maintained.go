package vmilifecycle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/podstatus"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// ReasonMaintenance is the reason of the condition Synchronized of a VMI whose VM is locked for a maintenance pod.
const ReasonMaintenance = "Maintenance"

// MaintainerOn reports whether a maintenance pod may write to one of the claims. vm is the VM that the pod names, as the
// API server has it after the pod, or the VMI without a VM; nil if there is neither. A pod with a gate writes nothing, but one that has the lock may
// lose its gate at any moment. Like a launcher pod with a node it is seen by whoever asks later.
func MaintainerOn(claims []string, pod *corev1.Pod, of lock.Machine) (Rival, bool) {
	r := Rival{Pod: pod.Name, Maintains: lock.For(pod), UID: pod.UID, Created: pod.CreationTimestamp.Time, Claim: writtenOf(claims, pod)}
	holder := of != nil && lock.HeldBy(of, pod) && !lock.Ended(pod)
	return r, r.Claim != "" && (holder || lock.MayWrite(pod))
}

// locked reports whether the VM of the VMI's name is locked.
func (d *decision) locked() bool {
	if d.o.VM == nil {
		return false
	}
	_, locked := lock.Of(d.o.VM)
	return locked
}

// awaitUnlock keeps the VMI from its node while its VM's disks are locked. It goes if the VM is to be halted, and goes on
// otherwise: a pod that has the lock and does not run yet gives way to it.
func (d *decision) awaitUnlock() {
	l, _ := lock.Of(d.o.VM)
	d.p.After = rivalPause
	d.facts.Wait.Phase = v1.Scheduling
	d.facts.Obstacle = vmistatus.Known(&vmistatus.Obstacle{Reason: ReasonMaintenance,
		Message: fmt.Sprintf("the VM is in maintenance mode: its disks are locked for the pod %s; it starts when that has ended", l.Pod)})
}

// Maintained reports whether a VMI is to have no guest for now: its start strategy says so, or it is locked for a
// maintenance pod still.
func Maintained(vmi *v1.VirtualMachineInstance) bool {
	_, locked := lock.Of(vmi)
	return locked || lock.Wanted(vmi)
}

// decideMaintained keeps a VMI that has no guest from having one. A pod that was made for it goes.
func (d *decision) decideMaintained() {
	o := &d.o
	d.p.DeletePod = d.p.DeletePod || o.Pod != nil && o.Pod.DeletionTimestamp == nil && d.bond() != launcherpod.Foreign
	d.maintain()
}

// maintain says what the VMI waits for.
func (d *decision) maintain() {
	l, locked := lock.Of(d.o.VMI)
	m := &vmistatus.Maintain{Locked: locked}
	switch {
	case locked && lock.Wanted(d.o.VMI):
		m.For = fmt.Sprintf("the disks are locked for the pod %s", l.Pod)
	case locked:
		m.For = fmt.Sprintf("the disks are locked for the pod %s; the guest starts when that has ended", l.Pod)
	default:
		m.For = fmt.Sprintf("spec.startStrategy is %s: the guest starts when it is not any more", lock.StartStrategy)
	}
	d.facts.Maintain = m
}

// shutDown ends the guest of a VMI that is to have none: its pod is deleted, in which virt-launcher presses the power
// button and then waits for as long as the VMI's grace period. A migration comes to its end first.
func (d *decision) shutDown() {
	o := &d.o
	d.p.DeletePod = d.p.DeletePod || lock.Wanted(o.VMI) && o.VMI.DeletionTimestamp == nil && !migration.InFlight(o.VMI) &&
		o.Pod != nil && o.Pod.DeletionTimestamp == nil && !podstatus.Terminal(o.Pod)
}

// decideAnew has a VMI that has ended, and is to have no guest for now, begin anew when none of its pods exists any more, as
// the API server says: the next guest's pod has the first one's name. It reports false while a pod has not ended.
func (d *decision) decideAnew() bool {
	o := &d.o
	other := d.migrated()
	switch {
	case !o.PodAsked:
		d.p.Needs = NeedPod
	case d.p.DeletePod:
		// It is another pod of the name.
	case o.Pod != nil && !podstatus.Terminal(o.Pod):
		return false
	case o.Pod != nil:
		d.p.DeletePod = o.Pod.DeletionTimestamp == nil
	case other && !o.OtherAsked:
		d.p.Needs = NeedOther
	case other && o.Other != nil && launcherpod.BondOf(o.Other, o.VMI) != launcherpod.Foreign:
		d.p.DeleteOther = o.Other.DeletionTimestamp == nil
	default:
		delete(d.p.VMI.Labels, v1.NodeNameLabel)
		delete(d.p.VMI.Labels, v1.MigrationTargetNodeNameLabel)
		d.maintain()
	}
	return true
}
