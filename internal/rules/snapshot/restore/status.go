package restore

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/object/condition"
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
	ReasonTargetExists = "restore source and restore target are different but restore target already exists"
	ReasonTargetRuns   = "TargetNotReady"
	ReasonNameTaken    = "NameTaken"
	ReasonRefused      = "Refused"
)

func (d *decision) set(kind snapshotv1.ConditionType, status corev1.ConditionStatus, reason, message string) {
	condition.Set(&d.Restore.Status.Conditions, snapshotv1.Condition{Type: kind, Status: status, Reason: reason, Message: message}, d.o.Now)
}

func (d *decision) say(reason, message string) {
	if !d.isHeld(reason, message) {
		d.both(corev1.ConditionTrue, reason, message)
	}
}

// await describes work that others do for the restore.
func (d *decision) await(reason, message string) {
	d.say(reason, message)
	d.Step, d.After = Rest, whileFilled
}

// wait describes an obstacle that the restore can't remove. It makes no progress meanwhile.
func (d *decision) wait(reason, message string, after time.Duration) {
	if !d.isHeld(reason, message) {
		d.both(corev1.ConditionFalse, reason, message)
	}
	d.Step, d.After = Rest, after
}

// A refusal stays in the status until the work is done.
func (d *decision) isHeld(reason, message string) bool {
	c := d.progressing()
	return c != nil && work(c) == reason && condition.Doing(c.Message) == message && condition.Refusal(c.Message) != ""
}

// both sets Progressing, with the same reason for Ready, which is False.
func (d *decision) both(progressing corev1.ConditionStatus, reason, message string) {
	d.set(snapshotv1.ConditionProgressing, progressing, reason, message)
	d.set(snapshotv1.ConditionReady, corev1.ConditionFalse, reason, message)
}

// Held returns the restore with the status for a refusal by another component's admission webhook, which may be
// temporary. As in KubeVirt, the reason has the refusal, too.
func Held(p Plan, sentence string) *snapshotv1.VirtualMachineRestore {
	d := &decision{Plan: Plan{Restore: p.Restore.DeepCopy()}}
	if c := d.progressing(); c != nil && !ended(d.Restore) {
		message := condition.Refused(c.Message, sentence)
		d.both(corev1.ConditionFalse, work(c)+ofRefusal+condition.Refusal(message), message)
	}
	return d.Restore
}

const ofRefusal = ": "

// work returns the reason without the refusal.
func work(c *snapshotv1.Condition) string {
	reason, _, _ := strings.Cut(c.Reason, ofRefusal)
	return reason
}

func (d *decision) progressing() *snapshotv1.Condition {
	return condition.Find(d.Restore.Status.Conditions, snapshotv1.ConditionProgressing)
}

// WaitsForTarget reports whether the restore waits for its target to stop.
func WaitsForTarget(r *snapshotv1.VirtualMachineRestore) bool {
	return unfinished(r) == ReasonTargetRuns
}

// Waits reports whether the restore waits for its snapshot, or for other work on its target.
func Waits(r *snapshotv1.VirtualMachineRestore) bool { return unfinished(r) == ReasonWaiting }

func unfinished(r *snapshotv1.VirtualMachineRestore) string {
	if r.Status == nil || ended(r) {
		return ""
	}
	if c := condition.Find(r.Status.Conditions, snapshotv1.ConditionProgressing); c != nil {
		return work(c)
	}
	return ""
}

func ended(r *snapshotv1.VirtualMachineRestore) bool { return Complete(r) || Failed(r) }

// Trouble returns the API server's temporary refusal.
func Trouble(r *snapshotv1.VirtualMachineRestore) string {
	if unfinished(r) == "" {
		return ""
	}
	return condition.Refusal(condition.Find(r.Status.Conditions, snapshotv1.ConditionProgressing).Message)
}

// The restore's objects are deleted once the status has the failure.
func (d *decision) fail(reason, message string) {
	d.both(corev1.ConditionFalse, reason, message)
	d.set(snapshotv1.ConditionFailure, corev1.ConditionTrue, reason, message)
	d.Step, d.VM, d.Claims, d.After = Rest, nil, nil, 0
}

// FailedForItsTarget reports whether the restore has failed because its target runs.
func FailedForItsTarget(r *snapshotv1.VirtualMachineRestore) bool {
	return Failed(r) && condition.Find(r.Status.Conditions, snapshotv1.ConditionFailure).Reason == ReasonTargetRuns
}

// Failed reports whether the restore has failed, which is final.
func Failed(r *snapshotv1.VirtualMachineRestore) bool {
	return r.Status != nil && condition.IsTrue(r.Status.Conditions, snapshotv1.ConditionFailure)
}

// Refused returns the restore with the status for a permanent refusal by the API server. It waits if claims are being
// replaced, or its VM has the disks already.
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
