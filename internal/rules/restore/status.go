package restore

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/condition"
)

// Reasons of the conditions.
const (
	// ReasonInPlace and ReasonNewVM also record whether the target existed.
	ReasonInPlace      = "RestoringInPlace"
	ReasonNewVM        = "MakingVirtualMachine"
	ReasonWaiting      = "Waiting"
	ReasonComplete     = "Operation complete"
	ReasonSourceLost   = "SourceLost"
	ReasonTargetLost   = "TargetLost"
	ReasonTargetExists = "TargetExists"
	ReasonTargetRuns   = "TargetNotReady"
	ReasonNameTaken    = "NameTaken"
	ReasonRefused      = "Refused"
)

func (d *decision) set(kind snapshotv1.ConditionType, status corev1.ConditionStatus, reason, message string) {
	condition.Set(&d.Restore.Status.Conditions, snapshotv1.Condition{Type: kind, Status: status, Reason: reason, Message: message}, d.o.Now)
}

func (d *decision) say(reason, message string) {
	if c := d.progressing(); c != nil && c.Reason == reason {
		message = condition.Again(c.Message, message)
	}
	d.set(snapshotv1.ConditionProgressing, corev1.ConditionTrue, reason, message)
	d.set(snapshotv1.ConditionReady, corev1.ConditionFalse, reason, message)
}

// Held returns the restore with the status for a refusal by another component's admission webhook,
// which may be temporary.
func Held(p Plan, sentence string) *snapshotv1.VirtualMachineRestore {
	d := &decision{Plan: Plan{Restore: p.Restore.DeepCopy()}}
	if c := d.progressing(); c != nil && c.Status == corev1.ConditionTrue {
		d.say(c.Reason, condition.Refused(c.Message, sentence))
	}
	return d.Restore
}

func (d *decision) progressing() *snapshotv1.Condition {
	return condition.Find(d.Restore.Status.Conditions, snapshotv1.ConditionProgressing)
}

// WaitsForTarget reports whether the restore waits for its target to stop.
func WaitsForTarget(r *snapshotv1.VirtualMachineRestore) bool {
	return says(r, func(c *snapshotv1.Condition) bool { return c.Reason == ReasonTargetRuns })
}

// Trouble returns the API server's temporary refusal in the restore's status, "" for none.
func Trouble(r *snapshotv1.VirtualMachineRestore) string {
	if says(r, func(*snapshotv1.Condition) bool { return true }) {
		return condition.Refusal(condition.Find(r.Status.Conditions, snapshotv1.ConditionProgressing).Message)
	}
	return ""
}

// says reports whether the restore is in progress and its condition satisfies so.
func says(r *snapshotv1.VirtualMachineRestore, so func(*snapshotv1.Condition) bool) bool {
	if r.Status == nil {
		return false
	}
	c := condition.Find(r.Status.Conditions, snapshotv1.ConditionProgressing)
	return c != nil && c.Status == corev1.ConditionTrue && so(c)
}

func (d *decision) wait(reason, message string, after time.Duration) {
	d.say(reason, message)
	d.Step, d.After = Rest, after
}

// fail ends the restore. Its objects are deleted once the status has the failure.
func (d *decision) fail(reason, message string) {
	d.set(snapshotv1.ConditionProgressing, corev1.ConditionFalse, reason, message)
	d.set(snapshotv1.ConditionReady, corev1.ConditionFalse, reason, message)
	d.set(snapshotv1.ConditionFailure, corev1.ConditionTrue, reason, message)
	d.Step, d.VM, d.Claims, d.After = Rest, nil, nil, 0
}

// Failed reports whether the restore has failed, which is final.
func Failed(r *snapshotv1.VirtualMachineRestore) bool {
	return r.Status != nil && condition.IsTrue(r.Status.Conditions, snapshotv1.ConditionFailure)
}

// Refused returns the restore with the status for a permanent refusal by the API server. If it has
// begun to replace claims, or its VM has the disks already, it waits until it can continue.
func Refused(o Observed, p Plan, sentence string) *snapshotv1.VirtualMachineRestore {
	d := &decision{Plan: Plan{Restore: p.Restore.DeepCopy()}, o: o}
	switch {
	case d.switched():
		d.wait(d.done(), sentence, d.again())
	case policy(o.Restore) == snapshotv1.VolumeRestorePolicyInPlace && d.locked():
		d.wait(ReasonInPlace, sentence, d.again())
	default:
		d.fail(ReasonRefused, sentence)
	}
	return d.Restore
}

func (d *decision) succeed() {
	status := d.Restore.Status
	now := metav1.NewTime(d.o.Now)
	status.Complete, status.RestoreTime = new(true), &now
	d.set(snapshotv1.ConditionProgressing, corev1.ConditionFalse, ReasonComplete, "the VM is restored")
	d.set(snapshotv1.ConditionReady, corev1.ConditionTrue, ReasonComplete, "the VM is restored")
}
