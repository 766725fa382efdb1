package clone

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/snapshot"
	"drydock.dev/drydock/internal/rules/snapshot/restore"
)

// Requeue intervals: for a source, whose events do not enqueue its clones; and for claims that are bound when somebody
// starts the VM.
const (
	whileWaits   = 5 * time.Second
	longestWait  = time.Minute
	whileUnbound = time.Minute
)

// Observed is the input of a decision, read from the API server.
type Observed struct {
	Clone *clonev1.VirtualMachineClone
	// Source is the cloned VM, nil if a snapshot is cloned.
	Source *v1.VirtualMachine
	// Snapshot is the clone's own or the cloned one.
	Snapshot *snapshotv1.VirtualMachineSnapshot
	Content  *snapshotv1.VirtualMachineSnapshotContent
	// Restore has the name RestoreName.
	Restore *snapshotv1.VirtualMachineRestore
	// Target has the name TargetName.
	Target *v1.VirtualMachine
	// Unbound means that a claim of the restore is not bound.
	Unbound bool
	Now     time.Time
}

// Step is one action of a plan.
type Step string

// The steps. Each but Rest requeues at once.
const (
	// Rest only writes the status.
	Rest         Step = ""
	MakeSnapshot Step = "make the snapshot"
	MakeRestore  Step = "make the restore"
	// Adopt makes the target an owner of the clone.
	Adopt        Step = "have the clone go with its target"
	DropRestore  Step = "delete the restore"
	DropSnapshot Step = "delete the snapshot"
)

// Plan is the status to write, followed by one step.
type Plan struct {
	// Clone has the desired status; never nil.
	Clone    *clonev1.VirtualMachineClone
	Step     Step
	Snapshot *snapshotv1.VirtualMachineSnapshot
	Restore  *snapshotv1.VirtualMachineRestore
	// After is the requeue delay.
	After time.Duration
}

type decision struct {
	Plan
	o Observed
}

// Decide returns the plan for an observation.
func Decide(o Observed) Plan {
	d := &decision{Plan: Plan{Clone: o.Clone.DeepCopy()}, o: o}
	switch {
	case o.Clone.DeletionTimestamp != nil:
		// Ownership deletes the clone's objects.
	case Ended(o.Clone):
		d.deleteTemporary()
	default:
		d.progress()
	}
	return d.Plan
}

// Ended reports whether the clone has succeeded or failed.
func Ended(c *clonev1.VirtualMachineClone) bool {
	return c.Status.Phase == clonev1.Succeeded || c.Status.Phase == clonev1.Failed
}

// Settled reports whether nothing is left to do for the clone, whatever other objects exist.
func Settled(c *clonev1.VirtualMachineClone) bool {
	return Ended(c) && c.Status.SnapshotName == nil && c.Status.RestoreName == nil
}

func ofVM(c *clonev1.VirtualMachineClone) bool { return c.Spec.Source.Kind == "VirtualMachine" }

// SnapshotName names the snapshot to restore.
func SnapshotName(c *clonev1.VirtualMachineClone) string {
	if !ofVM(c) {
		return c.Spec.Source.Name
	}
	return "tmp-snapshot-" + string(c.UID)
}

// RestoreName names the clone's restore.
func RestoreName(c *clonev1.VirtualMachineClone) string { return "tmp-restore-" + string(c.UID) }

// maxBase limits the source's name in a generated name, which has at most 63 characters like other VMs' names.
const maxBase = 63 - len("-clone-") - 8

// TargetName names the VM to create. A generated name follows from the clone's UID.
func TargetName(c *clonev1.VirtualMachineClone) string {
	if c.Spec.Target != nil && c.Spec.Target.Name != "" {
		return c.Spec.Target.Name
	}
	// A snapshot's name may have dots, a VM's not.
	base := strings.ReplaceAll(c.Spec.Source.Name, ".", "-")
	base = strings.TrimRight(base[:min(len(base), maxBase)], "-")
	return base + "-clone-" + string(c.UID)[:min(len(c.UID), 8)]
}

func (d *decision) controls(object metav1.Object) bool {
	return metav1.IsControlledBy(object, d.o.Clone)
}

// again returns the requeue interval for an external obstacle. Events of the VM come sooner.
func (d *decision) again() time.Duration {
	return backoff.Growing(d.o.Now.Sub(d.o.Clone.CreationTimestamp.Time), whileWaits, longestWait)
}

func (d *decision) progress() {
	status := &d.Clone.Status
	status.SnapshotName, status.RestoreName = new(SnapshotName(d.o.Clone)), new(RestoreName(d.o.Clone))
	status.TargetName = new(TargetName(d.o.Clone))
	if _, err := parse(d.o.Clone.Spec.Patches); err != nil {
		d.fail(ReasonRefused, err.Error())
		return
	}
	switch restored := d.o.Restore; {
	case restored == nil && d.o.Target != nil && strings.HasPrefix(d.o.Target.Annotations[restore.LastRestore], RestoreName(d.o.Clone)+"-"):
		// The restore, which is gone, has made the target.
		d.complete()
	case restored == nil && d.o.Target != nil:
		d.fail(ReasonTargetExists, fmt.Sprintf("the VM %s exists already: a clone makes a new one", *status.TargetName))
	case restored == nil && ofVM(d.o.Clone):
		d.takeSnapshot()
	case restored == nil:
		d.useSnapshot()
	case !d.controls(restored):
		d.fail(ReasonNameTaken, fmt.Sprintf("the restore %s exists and is not the clone's", restored.Name))
	case restore.Complete(restored):
		d.complete()
	case restore.Failed(restored):
		d.fail(ReasonRestoreFailed, fmt.Sprintf("making the VM %s has failed: %s", TargetName(d.o.Clone), restoreMessage(restored, snapshotv1.ConditionFailure)))
	case d.o.Target != nil:
		d.setProgressing(clonev1.CreatingTargetVM, ReasonTarget, fmt.Sprintf("the VM %s is there: %s", d.o.Target.Name, restoreMessage(restored, snapshotv1.ConditionProgressing)))
	default:
		d.setProgressing(clonev1.RestoreInProgress, ReasonRestore, fmt.Sprintf("the restore is in progress: %s", restoreMessage(restored, snapshotv1.ConditionProgressing)))
	}
}

func (d *decision) takeSnapshot() {
	switch s, name := d.o.Snapshot, d.o.Clone.Spec.Source.Name; {
	case s == nil && d.o.Source == nil:
		d.wait(ReasonNoSource, fmt.Sprintf("the VM %s, which is to be cloned, does not exist", name))
	case s == nil:
		d.setProgressing(clonev1.SnapshotInProgress, ReasonSnapshot, fmt.Sprintf("a snapshot of the VM %s is being made", name))
		d.Step = MakeSnapshot
		d.Snapshot = &snapshotv1.VirtualMachineSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: d.o.Clone.Namespace, Name: SnapshotName(d.o.Clone), OwnerReferences: d.owner()},
			Spec:       snapshotv1.VirtualMachineSnapshotSpec{Source: vmReference(name)},
		}
	case !d.controls(s):
		d.fail(ReasonNameTaken, fmt.Sprintf("the snapshot %s exists and is not the clone's", s.Name))
	case s.DeletionTimestamp != nil:
		d.setProgressing(clonev1.SnapshotInProgress, ReasonSnapshot, fmt.Sprintf("the snapshot %s was deleted; another one is made when it is gone", s.Name))
	case !snapshot.Ended(s):
		d.setProgressing(clonev1.SnapshotInProgress, ReasonSnapshot, fmt.Sprintf("the snapshot of the VM %s is in progress: %s", name, snapshotMessage(s)))
	case s.Status.Phase == snapshotv1.Failed:
		d.fail(ReasonSnapshotFailed, fmt.Sprintf("the snapshot of the VM %s has failed: %s", name, snapshotMessage(s)))
	default:
		d.restore()
	}
}

func (d *decision) useSnapshot() {
	switch s, name := d.o.Snapshot, d.o.Clone.Spec.Source.Name; {
	case s == nil:
		d.wait(ReasonNoSource, fmt.Sprintf("the snapshot %s, which is to be cloned, does not exist", name))
	case s.DeletionTimestamp != nil:
		d.fail(ReasonSourceLost, fmt.Sprintf("the snapshot %s is being deleted", name))
	case !snapshot.Ended(s):
		d.wait(ReasonWaiting, fmt.Sprintf("the snapshot %s is not ready to use yet: %s", name, snapshotMessage(s)))
	case s.Status.Phase == snapshotv1.Failed:
		d.fail(ReasonSourceLost, fmt.Sprintf("the snapshot %s has failed, and can't be cloned: %s", name, snapshotMessage(s)))
	default:
		d.restore()
	}
}

func (d *decision) restore() {
	c := d.o.Content
	if c == nil || c.DeletionTimestamp != nil || c.Spec.Source.VirtualMachine == nil || c.Spec.Source.VirtualMachine.Spec.Template == nil {
		d.fail(ReasonSourceLost, fmt.Sprintf("the content of the snapshot %s was deleted", d.o.Snapshot.Name))
		return
	}
	patches, err := patches(d.o.Clone, c.Spec.Source.VirtualMachine)
	if err != nil {
		d.fail(ReasonRefused, err.Error())
		return
	}
	d.setProgressing(clonev1.RestoreInProgress, ReasonRestore, "the restore is being made")
	d.Step = MakeRestore
	d.Restore = &snapshotv1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.o.Clone.Namespace, Name: RestoreName(d.o.Clone), OwnerReferences: d.owner()},
		Spec: snapshotv1.VirtualMachineRestoreSpec{
			Target: vmReference(TargetName(d.o.Clone)), VirtualMachineSnapshotName: SnapshotName(d.o.Clone), Patches: patches,
		},
	}
	if policy := d.o.Clone.Spec.VolumeNamePolicy; policy != nil {
		d.Restore.Spec.VolumeRestorePolicy = new(policy.ToVolumeRestorePolicy())
	}
}

// complete ends a clone whose target exists and owns it.
func (d *decision) complete() {
	target := d.o.Target
	if target != nil && !slices.ContainsFunc(d.o.Clone.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == target.UID }) {
		d.setProgressing(clonev1.CreatingTargetVM, ReasonTarget, fmt.Sprintf("the VM %s is there", target.Name))
		d.Step = Adopt
		return
	}
	d.succeed()
}

// Owner returns the reference that deletes a clone with its target, without controlling it.
func Owner(target *v1.VirtualMachine) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1.GroupVersion.String(), Kind: v1.VirtualMachineGroupVersionKind.Kind, Name: target.Name, UID: target.UID,
	}
}

// deleteTemporary deletes the restore before the snapshot, because the restore may have claims to delete.
func (d *decision) deleteTemporary() {
	r, s, status := d.o.Restore, d.o.Snapshot, &d.Clone.Status
	switch {
	case status.Phase == clonev1.Succeeded && d.o.Unbound:
		d.After = whileUnbound
	case r != nil && d.controls(r) && r.DeletionTimestamp == nil:
		d.Step = DropRestore
	case r != nil && d.controls(r):
		// Its end is an event.
	case s != nil && d.controls(s) && s.DeletionTimestamp == nil:
		d.Step = DropSnapshot
	case s != nil && d.controls(s):
		// Likewise.
	default:
		status.SnapshotName, status.RestoreName = nil, nil
	}
}

func (d *decision) owner() []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: clonev1.SchemeGroupVersion.String(), Kind: clonev1.VirtualMachineCloneKind.Kind,
		Name: d.o.Clone.Name, UID: d.o.Clone.UID, Controller: new(true),
	}}
}

func vmReference(name string) corev1.TypedLocalObjectReference {
	return corev1.TypedLocalObjectReference{APIGroup: new(v1.GroupVersion.Group), Kind: v1.VirtualMachineGroupVersionKind.Kind, Name: name}
}

func snapshotMessage(s *snapshotv1.VirtualMachineSnapshot) string {
	if s.Status == nil {
		return "it was not begun"
	}
	if s.Status.Error != nil && s.Status.Error.Message != nil {
		return *s.Status.Error.Message
	}
	if c := condition.Find(s.Status.Conditions, snapshotv1.ConditionProgressing); c != nil {
		return c.Message
	}
	return "it was not begun"
}

func restoreMessage(r *snapshotv1.VirtualMachineRestore, kind snapshotv1.ConditionType) string {
	if r.Status != nil {
		if c := condition.Find(r.Status.Conditions, kind); c != nil {
			return c.Message
		}
	}
	return "it was not begun"
}
