package snapshot

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/object/condition"
)

// Reasons of Progressing and Ready, which KubeVirt's clients match. ReasonNotLocked is followed by the obstacle, if
// KubeVirt has a name for it.
const (
	ReasonNoSource  = "Source does not exist"
	ReasonNotLocked = "Source not locked"
	ReasonLocked    = "Source locked and operation in progress"
	ReasonComplete  = "Operation complete"
	ReasonFailed    = "Operation failed"
	ReasonDeleting  = "VM snapshot is deleting"
	ReasonReady     = "Ready"
	ReasonNotReady  = "Not ready"
)

// Reasons of Failure.
const (
	ReasonNotSupported       = "VolumeSnapshotsNotSupported"
	ReasonSourceLost         = "SourceLost"
	ReasonStarted            = "VirtualMachineStarted"
	ReasonGuestLost          = "GuestEnded"
	ReasonNotHeld            = "GuestNotHeld"
	ReasonNothingIncluded    = "NoVolumeIncluded"
	ReasonForeign            = "NameTaken"
	ReasonVolumeSnapshotLost = "VolumeSnapshotLost"
	ReasonOtherVolumes       = "GroupHasOtherVolumes"
	ReasonDeadline           = "snapshot deadline exceeded"
	ReasonRefused            = "Refused"
)

// The list of excluded disks stays until the end.
const (
	messageCutting  = "the storage driver is making the VolumeSnapshots"
	messageExcluded = "not included: "
)

func (d *decision) progressing(status corev1.ConditionStatus, reason, message string) {
	if status == corev1.ConditionTrue {
		message = condition.Again(d.awaited(), message)
	}
	d.set(snapshotv1.ConditionProgressing, status, reason, message)
}

func (d *decision) ready(status corev1.ConditionStatus, message string) {
	reason := ReasonNotReady
	if status == corev1.ConditionTrue {
		reason = ReasonReady
	}
	d.set(snapshotv1.ConditionReady, status, reason, message)
}

func (d *decision) set(kind snapshotv1.ConditionType, status corev1.ConditionStatus, reason, message string) {
	condition.Set(&d.Snapshot.Status.Conditions, snapshotv1.Condition{Type: kind, Status: status, Reason: reason, Message: message}, d.o.Now)
}

func (d *decision) awaited() string {
	if c := condition.Find(d.Snapshot.Status.Conditions, snapshotv1.ConditionProgressing); c != nil {
		return c.Message
	}
	return "nothing was done"
}

// The snapshot's objects are deleted once the status has the failure.
func (d *decision) fail(reason, message string) {
	status := d.Snapshot.Status
	status.Phase, status.ReadyToUse, status.CreationTime = snapshotv1.Failed, new(false), nil
	now := metav1.NewTime(d.o.Now)
	status.Error = &snapshotv1.Error{Time: &now, Message: &message}
	d.progressing(corev1.ConditionFalse, ReasonFailed, message)
	d.ready(corev1.ConditionFalse, message)
	d.set(snapshotv1.ConditionFailure, corev1.ConditionTrue, reason, message)
	d.Step, d.Content, d.Labels, d.Cuts, d.Group, d.After = Rest, nil, nil, nil, nil, 0
}

// Refused returns the snapshot with the status for a permanent refusal by the API server.
func Refused(o Observed, p Plan, sentence string) *snapshotv1.VirtualMachineSnapshot {
	d := &decision{Plan: Plan{Snapshot: p.Snapshot.DeepCopy()}, o: o}
	d.fail(ReasonRefused, sentence)
	return d.Snapshot
}

// Held returns the snapshot with the status for a refusal by another component's admission webhook, which may be
// temporary.
func Held(p Plan, sentence string) *snapshotv1.VirtualMachineSnapshot {
	d := &decision{Plan: Plan{Snapshot: p.Snapshot.DeepCopy()}}
	c := condition.Find(d.Snapshot.Status.Conditions, snapshotv1.ConditionProgressing)
	if c != nil && c.Status == corev1.ConditionTrue {
		message := condition.Refused(c.Message, sentence)
		d.progressing(corev1.ConditionTrue, c.Reason, message)
		d.ready(corev1.ConditionFalse, message)
	}
	return d.Snapshot
}

func (d *decision) succeed(s state) {
	status := d.Snapshot.Status
	status.Phase, status.ReadyToUse, status.CreationTime = snapshotv1.Succeeded, new(true), s.taken
	if s.token == Unheld {
		d.indicate(s)
	}
	d.indicatePartial()
	message := "the snapshot is complete"
	if said := condition.Doing(d.awaited()); strings.HasPrefix(said, messageExcluded) {
		message = said
	}
	d.progressing(corev1.ConditionFalse, ReasonComplete, message)
	d.ready(corev1.ConditionTrue, "the snapshot can be restored")
}

// Waits reports whether a snapshot waits for its VM.
func Waits(s *snapshotv1.VirtualMachineSnapshot) bool {
	if s.Status == nil || s.Status.Phase != snapshotv1.InProgress {
		return false
	}
	c := condition.Find(s.Status.Conditions, snapshotv1.ConditionProgressing)
	return c != nil && c.Status == corev1.ConditionFalse
}
