package restore

import (
	"strings"
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
	d.set(snapshotv1.ConditionProgressing, corev1.ConditionTrue, reason, message)
	d.set(snapshotv1.ConditionReady, corev1.ConditionFalse, reason, message)
}

// held begins what is said while the API server refuses a step for now.
const held = "the API server refuses it for now: "

// longestSentence bounds the words of others in a condition.
const longestSentence = 1024

// begin reports what is being done next. That the API server refused it is said until it does it.
func (d *decision) begin(reason, message string) {
	c := condition.Find(d.Restore.Status.Conditions, snapshotv1.ConditionProgressing)
	if c != nil && c.Reason == reason && strings.HasPrefix(c.Message, held) {
		message = c.Message
	}
	d.say(reason, message)
}

// Held is the status to write when the API server refuses what was planned, and may do it later: another's admission
// webhook is in the way.
func Held(p Plan, sentence string) *snapshotv1.VirtualMachineRestore {
	d := &decision{Plan: Plan{Restore: p.Restore.DeepCopy()}}
	c := condition.Find(d.Restore.Status.Conditions, snapshotv1.ConditionProgressing)
	if c == nil || c.Status != corev1.ConditionTrue {
		return d.Restore
	}
	if len(sentence) > longestSentence {
		sentence = strings.ToValidUTF8(sentence[:longestSentence], "") + "…"
	}
	d.say(c.Reason, held+sentence)
	return d.Restore
}

// WaitsForTarget reports whether the restore says that its target has to be stopped first.
func WaitsForTarget(r *snapshotv1.VirtualMachineRestore) bool {
	return says(r, func(c *snapshotv1.Condition) bool { return c.Reason == ReasonTargetRuns })
}

// Trouble is what the API server refuses the restore for now, "" for nothing.
func Trouble(r *snapshotv1.VirtualMachineRestore) string {
	if says(r, func(c *snapshotv1.Condition) bool { return strings.HasPrefix(c.Message, held) }) {
		return condition.Find(r.Status.Conditions, snapshotv1.ConditionProgressing).Message
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
