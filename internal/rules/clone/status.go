package clone

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"

	"drydock.dev/drydock/internal/rules/condition"
)

// Reasons of the conditions.
const (
	ReasonWaiting        = "Waiting"
	ReasonSnapshot       = "MakingSnapshot"
	ReasonRestore        = "Restoring"
	ReasonTarget         = "MakingVirtualMachine"
	ReasonComplete       = "OperationComplete"
	ReasonSourceLost     = "SourceLost"
	ReasonTargetExists   = "TargetExists"
	ReasonNameTaken      = "NameTaken"
	ReasonSnapshotFailed = "SnapshotFailed"
	ReasonRestoreFailed  = "RestoreFailed"
	ReasonRefused        = "Refused"
)

func (d *decision) set(kind clonev1.ConditionType, status corev1.ConditionStatus, reason, message string) {
	condition.Set(&d.Clone.Status.Conditions, clonev1.Condition{Type: kind, Status: status, Reason: reason, Message: message}, d.o.Now)
}

// say reports what is being done.
func (d *decision) say(phase clonev1.VirtualMachineClonePhase, reason, message string) {
	d.Clone.Status.Phase = phase
	message = condition.Again(Says(d.Clone), message)
	d.set(clonev1.ConditionProgressing, corev1.ConditionTrue, reason, message)
	d.set(clonev1.ConditionReady, corev1.ConditionFalse, reason, message)
}

// wait reports what the source lacks.
func (d *decision) wait(reason, message string) {
	d.say(clonev1.SnapshotInProgress, reason, message)
	d.After = d.again()
}

// fail ends the clone. What it has made is deleted once its status says so.
func (d *decision) fail(reason, message string) {
	d.Clone.Status.Phase = clonev1.Failed
	d.set(clonev1.ConditionProgressing, corev1.ConditionFalse, reason, message)
	d.set(clonev1.ConditionReady, corev1.ConditionFalse, reason, message)
}

func (d *decision) succeed() {
	now := metav1.NewTime(d.o.Now)
	d.Clone.Status.Phase, d.Clone.Status.CreationTime = clonev1.Succeeded, &now
	message := "the VM " + TargetName(d.o.Clone) + " is there"
	d.set(clonev1.ConditionProgressing, corev1.ConditionFalse, ReasonComplete, message)
	d.set(clonev1.ConditionReady, corev1.ConditionTrue, ReasonComplete, message)
}

// Refused is the status to write when the API server refuses for good what was planned.
func Refused(o Observed, p Plan, sentence string) *clonev1.VirtualMachineClone {
	d := &decision{Plan: Plan{Clone: p.Clone.DeepCopy()}, o: o}
	d.fail(ReasonRefused, sentence)
	return d.Clone
}

// Held is the status to write when the API server refuses what was planned, and may do it later: another's admission
// webhook is in the way.
func Held(p Plan, sentence string) *clonev1.VirtualMachineClone {
	d := &decision{Plan: Plan{Clone: p.Clone.DeepCopy()}}
	c := condition.Find(d.Clone.Status.Conditions, clonev1.ConditionProgressing)
	if c != nil && c.Status == corev1.ConditionTrue {
		d.say(d.Clone.Status.Phase, c.Reason, condition.Refused(c.Message, sentence))
	}
	return d.Clone
}

// Says is what the clone's status says in words.
func Says(c *clonev1.VirtualMachineClone) string {
	if progressing := condition.Find(c.Status.Conditions, clonev1.ConditionProgressing); progressing != nil {
		return progressing.Message
	}
	return ""
}

// Waits reports whether a clone says that it waits for its source.
func Waits(c *clonev1.VirtualMachineClone) bool {
	p := condition.Find(c.Status.Conditions, clonev1.ConditionProgressing)
	return p != nil && p.Status == corev1.ConditionTrue && p.Reason == ReasonWaiting
}
