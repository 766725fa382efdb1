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
	// ReasonInPlace and ReasonNewVM say what the restore has found its target to be, and by that
	// remember it.
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

// say reports what is being done.
func (d *decision) say(reason, message string) {
	if c := d.progressing(); c != nil && c.Reason == reason {
		message = condition.Again(c.Message, message)
	}
	d.set(snapshotv1.ConditionProgressing, corev1.ConditionTrue, reason, message)
	d.set(snapshotv1.ConditionReady, corev1.ConditionFalse, reason, message)
}

// Held is the status to write when the API server refuses what was planned, and may do it later: another's admission
// webhook is in the way.
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

// WaitsForTarget reports whether the restore says that its target has to be stopped first.
func WaitsForTarget(r *snapshotv1.VirtualMachineRestore) bool {
	return says(r, func(c *snapshotv1.Condition) bool { return c.Reason == ReasonTargetRuns })
}

// Trouble is what the API server says against the restore for now, "" for nothing.
func Trouble(r *snapshotv1.VirtualMachineRestore) string {
	if says(r, func(*snapshotv1.Condition) bool { return true }) {
		return condition.Refusal(condition.Find(r.Status.Conditions, snapshotv1.ConditionProgressing).Message)
	}
	return ""
}

// says reports whether the restore is in progress, and what it says of that is so.
func says(r *snapshotv1.VirtualMachineRestore, so func(*snapshotv1.Condition) bool) bool {
	if r.Status == nil {
		return false
	}
	c := condition.Find(r.Status.Conditions, snapshotv1.ConditionProgressing)
	return c != nil && c.Status == corev1.ConditionTrue && so(c)
}

// wait reports what is waited for.
func (d *decision) wait(reason, message string, after time.Duration) {
	d.say(reason, message)
	d.Step, d.After = Rest, after
}

// fail ends the restore. What it has made is taken back once its status says so.
func (d *decision) fail(reason, message string) {
	d.set(snapshotv1.ConditionProgressing, corev1.ConditionFalse, reason, message)
	d.set(snapshotv1.ConditionReady, corev1.ConditionFalse, reason, message)
	d.set(snapshotv1.ConditionFailure, corev1.ConditionTrue, reason, message)
	d.Step, d.VM, d.Claims, d.After = Rest, nil, nil, 0
}

// Failed reports whether the restore has failed for good.
func Failed(r *snapshotv1.VirtualMachineRestore) bool {
	return r.Status != nil && condition.IsTrue(r.Status.Conditions, snapshotv1.ConditionFailure)
}

// Refused is the status to write when the API server refuses for good what was planned. A restore
// that has begun to replace claims, or whose VM has the disks already, waits until it can go on.
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
