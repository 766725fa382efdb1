package clone

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"

	"drydock.dev/drydock/internal/rules/object/condition"
)

// Reasons of the conditions.
const (
	// ReasonNoSource is also the reason of an event that KubeVirt's clients wait for.
	ReasonNoSource       = "SourceDoesNotExist"
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

func (d *decision) setProgressing(phase clonev1.VirtualMachineClonePhase, reason, message string) {
	d.Clone.Status.Phase = phase
	message = condition.Again(Says(d.Clone), message)
	d.set(clonev1.ConditionProgressing, corev1.ConditionTrue, reason, message)
	d.set(clonev1.ConditionReady, corev1.ConditionFalse, reason, message)
}

// wait describes an obstacle that the clone can't remove. It makes no progress meanwhile.
func (d *decision) wait(reason, message string) {
	d.Clone.Status.Phase = clonev1.SnapshotInProgress
	d.set(clonev1.ConditionProgressing, corev1.ConditionFalse, reason, message)
	d.set(clonev1.ConditionReady, corev1.ConditionFalse, reason, message)
	d.After = d.again()
}

// The clone's objects are deleted once the status has the failure.
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

// Refused returns the clone with the status for a permanent refusal by the API server.
func Refused(o Observed, p Plan, sentence string) *clonev1.VirtualMachineClone {
	d := &decision{Plan: Plan{Clone: p.Clone.DeepCopy()}, o: o}
	d.fail(ReasonRefused, sentence)
	return d.Clone
}

// Held returns the clone with the status for a refusal by another component's admission webhook, which may be temporary.
func Held(p Plan, sentence string) *clonev1.VirtualMachineClone {
	d := &decision{Plan: Plan{Clone: p.Clone.DeepCopy()}}
	c := condition.Find(d.Clone.Status.Conditions, clonev1.ConditionProgressing)
	if c != nil && c.Status == corev1.ConditionTrue {
		d.setProgressing(d.Clone.Status.Phase, c.Reason, condition.Refused(c.Message, sentence))
	}
	return d.Clone
}

// Says returns the message of the clone's condition Progressing.
func Says(c *clonev1.VirtualMachineClone) string {
	if progressing := condition.Find(c.Status.Conditions, clonev1.ConditionProgressing); progressing != nil {
		return progressing.Message
	}
	return ""
}

// Waits reports whether a clone waits for its source.
func Waits(c *clonev1.VirtualMachineClone) bool {
	p := condition.Find(c.Status.Conditions, clonev1.ConditionProgressing)
	return p != nil && (p.Reason == ReasonWaiting || p.Reason == ReasonNoSource)
}

// LacksSource reports whether a clone waits for a source that does not exist.
func LacksSource(c *clonev1.VirtualMachineClone) bool {
	p := condition.Find(c.Status.Conditions, clonev1.ConditionProgressing)
	return p != nil && p.Reason == ReasonNoSource
}
