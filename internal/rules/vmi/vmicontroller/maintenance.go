package vmicontroller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// ReasonMaintenance is Synchronized's reason for a VMI whose VM is locked.
const ReasonMaintenance = "Maintenance"

// MaintainerOn reports whether a maintenance pod may write to one of the claims. of is the VM that the pod names, or the
// VMI without a VM, read from the API server after the pod. A gated pod does not write, but one with the lock may lose its
// gate at any moment. Every later read shows it, as it does a launcher pod with a node.
func MaintainerOn(claims []string, pod *corev1.Pod, of lock.Machine) (Rival, bool) {
	r := Rival{Pod: pod.Name, Maintains: lock.For(pod), UID: pod.UID, Created: pod.CreationTimestamp.Time, Claim: claimWrittenBy(claims, pod)}
	holder := of != nil && lock.HeldBy(of, pod) && !lock.Ended(pod)
	return r, r.Claim != "" && (holder || lock.MayWrite(pod))
}

func (d *decision) locked() bool {
	if d.o.VM == nil {
		return false
	}
	_, locked := lock.Of(d.o.VM)
	return locked
}

// The VMI of a VM to be halted is deleted. A locked pod that does not run yet gives way.
func (d *decision) awaitUnlock() {
	l, _ := lock.Of(d.o.VM)
	d.p.After = rivalPause
	d.facts.Wait.Phase = v1.Scheduling
	d.facts.Obstacle = vmistatus.Known(&vmistatus.Obstacle{Reason: ReasonMaintenance,
		Message: fmt.Sprintf("the VM is in maintenance mode: its disks are locked for the pod %s; it starts when that has ended", l.Pod)})
}

// Maintained reports whether a VMI must have no guest for now.
func Maintained(vmi *v1.VirtualMachineInstance) bool {
	_, locked := lock.Of(vmi)
	return locked || lock.Wanted(vmi)
}

func (d *decision) reportMaintenance() {
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

// After the pod's deletion virt-launcher presses the power button, and waits for the VMI's grace period. A migration ends
// first.
func (d *decision) shutDown() {
	o := &d.o
	d.p.DeletePod = d.p.DeletePod || lock.Wanted(o.VMI) && o.VMI.DeletionTimestamp == nil && !migration.InFlight(o.VMI) &&
		o.Pod != nil && o.Pod.DeletionTimestamp == nil && !podstatus.Terminal(o.Pod)
}

// decideAnew resets an ended VMI when the API server has confirmed that its pods are gone: the next guest's pod has the
// same name. It returns false while a pod has not ended.
func (d *decision) decideAnew() bool {
	o := &d.o
	other := d.migrated()
	switch {
	case !o.PodAsked:
		d.p.Needs = NeedPod
	case d.p.DeletePod:
		// It is another pod with the same name.
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
		d.reportMaintenance()
	}
	return true
}
