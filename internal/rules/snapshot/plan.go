package snapshot

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vm/memorydump"
)

// Finalizer keeps a snapshot until its VM is unlocked.
const Finalizer = "snapshot.kubevirt.io/vmsnapshot-protection"

// Requeue intervals: while the VM is locked, and so can't start; while only the storage driver must finish; and while the
// snapshot waits for something else.
const (
	whileLocked = 250 * time.Millisecond
	whileStored = time.Second
	whileWaits  = 5 * time.Second
	longestWait = time.Minute
)

// Observed is the input of a decision, read from the API server, except for a snapshot that has succeeded.
type Observed struct {
	Snapshot *snapshotv1.VirtualMachineSnapshot
	// Supported means that the cluster serves VolumeSnapshots.
	Supported bool
	VM        *v1.VirtualMachine
	// VMI is nil if it has ended.
	VMI *v1.VirtualMachineInstance
	// Hold is the guest's current or last hold, read after VolumeSnapshots; nil if unknown, or if it does not matter
	// (AsksHold).
	Hold    *launch.Hold
	Content *snapshotv1.VirtualMachineSnapshotContent
	// Disks and GroupClasses, the VolumeGroupSnapshotClasses, are observed until there is a content.
	Disks        []Disk
	GroupClasses []Class
	// Labeled has the sorted names of the claims with the VM's GroupLabel, observed until there is a Group.
	Labeled []string
	// VolumeSnapshots has the content's ones by name.
	VolumeSnapshots map[string]VolumeSnapshot
	// Group is of a content for which ByGroup is true. Volumes are the claims' volumes, by PersistentVolume, observed
	// when Group is taken and the content has no names yet.
	Group   *Group
	Volumes map[string]Volume
	// Revisions has the existing ones of the function Revisions, and whether the content owns them; observed as long as
	// HoldsRevisions.
	Revisions map[string]bool
	Now       time.Time
}

// Step is one action of a plan.
type Step string

// The steps. Each but Rest requeues at once.
const (
	// Rest only writes the status.
	Rest    Step = ""
	Hold    Step = "put the finalizer on"
	Release Step = "take the finalizer off"
	// Lock records the snapshot in the VM's status. Unlock removes it, after it has ended the hold.
	Lock        Step = "lock the VM"
	Unlock      Step = "unlock the VM"
	MakeContent Step = "make the content"
	// HoldRevisions makes the content an owner of Plan.Revisions.
	HoldRevisions Step = "hold the revisions that the VM goes by"
	// Quiesce holds the guest for up to Plan.Timeout.
	Quiesce Step = "hold the guest still"
	// Cut creates Plan.Cuts or Plan.Group.
	Cut Step = "make the VolumeSnapshots"
	// Name is for a group's VolumeSnapshots.
	Name Step = "write the names of the VolumeSnapshots into the content"
	// Report writes the content's status, and ends the hold if all cuts are taken.
	Report Step = "write the content's status"
	// Discard deletes the content, and with it its VolumeSnapshots.
	Discard Step = "delete the content"
)

// Plan is the status to write, followed by one step.
type Plan struct {
	// Snapshot has the desired status; never nil.
	Snapshot *snapshotv1.VirtualMachineSnapshot
	Step     Step
	// Content is to be created, or has the status or names to write.
	Content *snapshotv1.VirtualMachineSnapshotContent
	// Labels is changed before the content or Group is created.
	Labels    *Labels
	Revisions []string
	// One of these must be created.
	Cuts  []NewVolumeSnapshot
	Group *NewGroup
	// Timeout limits the hold on the guest.
	Timeout time.Duration
	// After is the requeue delay.
	After time.Duration
}

type decision struct {
	Plan
	o Observed
}

// Decide returns the plan for an observation.
func Decide(o Observed) Plan {
	d := &decision{Plan: Plan{Snapshot: o.Snapshot.DeepCopy()}, o: o}
	if d.Snapshot.Status == nil {
		d.Snapshot.Status = &snapshotv1.VirtualMachineSnapshotStatus{}
	}
	switch phase := d.Snapshot.Status.Phase; {
	case o.Snapshot.DeletionTimestamp != nil:
		d.decideDeletion()
	case !slices.Contains(o.Snapshot.Finalizers, Finalizer) && !Ended(o.Snapshot):
		d.Step = Hold
	case phase == snapshotv1.Succeeded:
		if !d.content() {
			d.Snapshot.Status.ReadyToUse = new(false)
			d.ready(corev1.ConditionFalse, "the VirtualMachineSnapshotContent "+ContentName(d.o.Snapshot)+" was deleted; the snapshot can't be restored")
		}
	case phase == snapshotv1.Failed:
		switch {
		case d.locked():
			d.Step = Unlock
		case d.content():
			d.Step = Discard
		}
	default:
		d.progress()
	}
	return d.Plan
}

// Ended reports whether the snapshot has succeeded or failed.
func Ended(s *snapshotv1.VirtualMachineSnapshot) bool {
	return s.Status != nil && (s.Status.Phase == snapshotv1.Succeeded || s.Status.Phase == snapshotv1.Failed)
}

func (d *decision) locked() bool {
	return d.o.VM != nil && d.o.VM.Status.SnapshotInProgress != nil && *d.o.VM.Status.SnapshotInProgress == d.o.Snapshot.Name
}

// decideDeletion unlocks the VM before the snapshot is gone. The content follows by ownership; a retained
// one has no owner.
func (d *decision) decideDeletion() {
	if !slices.Contains(d.Snapshot.Finalizers, Finalizer) {
		return
	}
	incomplete := !Ended(d.o.Snapshot) || d.Snapshot.Status.Phase == snapshotv1.Failed
	d.Snapshot.Status.Phase = snapshotv1.Deleting
	d.progressing(corev1.ConditionFalse, ReasonDeleting, "the snapshot is being deleted")
	d.ready(corev1.ConditionFalse, "the snapshot is being deleted")
	switch {
	case d.locked():
		d.Step = Unlock
	case incomplete && d.content() && !ready(d.o.Content):
		// The incomplete content is useless, whatever the deletion policy.
		d.Step = Discard
	default:
		d.Step = Release
	}
}

func (d *decision) content() bool {
	return d.o.Content != nil && d.o.Content.DeletionTimestamp == nil
}

func ready(c *snapshotv1.VirtualMachineSnapshotContent) bool {
	return c.Status != nil && c.Status.ReadyToUse != nil && *c.Status.ReadyToUse
}

// again returns the requeue interval for an external obstacle. Events of the VM come sooner.
func (d *decision) again() time.Duration {
	return backoff.Growing(d.o.Now.Sub(d.o.Snapshot.CreationTimestamp.Time), whileWaits, longestWait)
}

func (d *decision) progress() {
	d.Snapshot.Status.Phase, d.Snapshot.Status.ReadyToUse = snapshotv1.InProgress, new(false)
	d.recall()
	switch {
	case !d.o.Supported:
		d.fail(ReasonNotSupported, "the cluster serves no VolumeSnapshots: install the definitions of snapshot.storage.k8s.io, its controller, and a storage driver that makes snapshots")
	case d.lost() != "":
		d.fail(ReasonSourceLost, d.lost())
	case d.o.Content == nil:
		d.begin()
	default:
		d.cut()
	}
	d.expire()
}

// recall restores a cleared status from the content.
func (d *decision) recall() {
	status, c := d.Snapshot.Status, d.o.Content
	if c == nil || c.Spec.Source.VirtualMachine == nil {
		return
	}
	of := c.Spec.Source.VirtualMachine
	if status.SourceUID == nil {
		status.SourceUID = new(of.UID)
	}
	if status.VirtualMachineSnapshotContentName == nil {
		status.VirtualMachineSnapshotContentName = new(c.Name)
	}
	if status.SnapshotVolumes != nil {
		return
	}
	status.SnapshotVolumes = &snapshotv1.SnapshotVolumesLists{}
	for i := range c.Spec.VolumeBackups {
		status.SnapshotVolumes.IncludedVolumes = append(status.SnapshotVolumes.IncludedVolumes, c.Spec.VolumeBackups[i].VolumeName)
	}
	if of.Spec.Template == nil {
		return
	}
	for _, volume := range OnClaims(of.Spec.Template.Spec.Volumes) {
		if !slices.Contains(status.SnapshotVolumes.IncludedVolumes, volume[0]) {
			status.SnapshotVolumes.ExcludedVolumes = append(status.SnapshotVolumes.ExcludedVolumes, volume[0])
		}
	}
}

func (d *decision) lost() string {
	uid, name := d.Snapshot.Status.SourceUID, d.o.Snapshot.Spec.Source.Name
	switch {
	case d.cutTaken():
		return ""
	case uid != nil && (d.o.VM == nil || d.o.VM.UID != *uid):
		return fmt.Sprintf("the VM %s was deleted before its snapshot was taken", name)
	case d.o.VM != nil && d.o.VM.DeletionTimestamp != nil:
		return fmt.Sprintf("the VM %s is being deleted", name)
	case d.o.Content != nil && d.o.Content.DeletionTimestamp != nil:
		return fmt.Sprintf("the VirtualMachineSnapshotContent %s was deleted before it was complete", d.o.Content.Name)
	}
	return ""
}

// begin locks the VM and creates the content.
func (d *decision) begin() {
	vm := d.o.VM
	switch {
	case vm == nil:
		d.wait(ReasonNoSource, fmt.Sprintf("the VM %s does not exist", d.o.Snapshot.Spec.Source.Name), d.again())
	case vm.Status.RestoreInProgress != nil:
		d.wait(ReasonNotLocked, fmt.Sprintf("the VM %s is being restored by %s", vm.Name, *vm.Status.RestoreInProgress), d.again())
	case vm.Status.SnapshotInProgress != nil && !d.locked():
		d.wait(fmt.Sprintf("%s snapshot %q in progress", ReasonNotLocked, *vm.Status.SnapshotInProgress), fmt.Sprintf("the snapshot %s of the VM %s is in progress", *vm.Status.SnapshotInProgress, vm.Name), d.again())
	case maintained(vm) && !d.locked():
		l, _ := lock.Of(vm)
		d.wait(ReasonNotLocked, fmt.Sprintf("the VM %s is in maintenance mode: its disks are locked for the pod %s", vm.Name, l.Pod), d.again())
	case memorydump.UnderWay(vm) && !d.locked():
		// A later request is refused: both are written on condition of the VM's resourceVersion.
		d.wait(ReasonNotLocked, fmt.Sprintf("the memory of the VM %s is being dumped to the PVC %s", vm.Name, vm.Status.MemoryDumpRequest.ClaimName), d.again())
	case vm.Spec.Template == nil:
		d.fail(ReasonSourceLost, fmt.Sprintf("the VM %s has no template", vm.Name))
	case unsteady(d.o.VMI) != "":
		d.wait(ReasonNotLocked, unsteady(d.o.VMI), d.again())
	case shapeless(vm) != "":
		d.wait(ReasonNotLocked, shapeless(vm), d.again())
	case !d.locked():
		// The status already has the next step, which saves a write.
		if d.selectDisks() {
			d.Snapshot.Status.SourceUID = &vm.UID
			d.Step, d.After = Lock, 0
		}
	case d.selectDisks():
		d.Content, d.Step = newContent(d.o), MakeContent
		d.Labels = d.labels(d.Content)
	}
}

// maintained reports whether the VM is locked for a maintenance pod. A later lock waits for the snapshot: both are
// written on condition of the VM's resourceVersion.
func maintained(vm *v1.VirtualMachine) bool {
	_, locked := lock.Of(vm)
	return locked
}

// selectDisks returns false if it can't yet, or there are none. A disk may wait for the VM to be started, which a locked
// VM can't be.
func (d *decision) selectDisks() bool {
	var included, excluded, reasons []string
	for _, disk := range d.o.Disks {
		switch {
		case disk.Waits != "":
			d.wait(fmt.Sprintf("%s source %s/%s %s: %s", ReasonNotLocked, d.o.VM.Namespace, d.o.VM.Name, disk.obstacle(), disk.Volume), disk.Waits, d.again())
			if d.locked() {
				d.Step = Unlock
			}
			return false
		case disk.Class == "":
			excluded, reasons = append(excluded, disk.Volume), append(reasons, disk.Why)
		default:
			included = append(included, disk.Volume)
		}
	}
	if len(included) == 0 && len(excluded) > 0 {
		d.fail(ReasonNothingIncluded, "none of the VM's disks can be snapshotted: "+strings.Join(reasons, "; "))
		return false
	}
	for _, volume := range ephemeral(d.o.VM, d.o.VMI) {
		excluded, reasons = append(excluded, volume), append(reasons, volume+" (it was plugged into the guest that runs, and is not in the VM's spec)")
	}
	d.Snapshot.Status.SnapshotVolumes = &snapshotv1.SnapshotVolumesLists{IncludedVolumes: included, ExcludedVolumes: excluded}
	message := messageCutting
	if len(reasons) > 0 {
		message = messageExcluded + strings.Join(reasons, "; ")
	}
	d.wait(ReasonLocked, message, 0)
	d.Snapshot.Status.VirtualMachineSnapshotContentName = new(ContentName(d.o.Snapshot))
	return true
}

// cutTaken reports whether the content's status has the time of all disks' snapshots.
func (d *decision) cutTaken() bool {
	return d.o.Content != nil && d.o.Content.Status != nil && d.o.Content.Status.CreationTime != nil
}

func (d *decision) cut() {
	state := summarize(d.o)
	switch {
	case d.spoiled(state), d.holdRevisions():
	case len(state.missing) > 0 || state.group != nil:
		d.make(state)
	case state.taken == nil:
		after := whileLocked
		if d.held() && time.Duration(d.o.Hold.Milliseconds)*time.Millisecond < fresh {
			after = whileFresh
		}
		d.await(state, after)
	default:
		d.recordTaken(state)
	}
}

func (d *decision) recordTaken(state state) {
	switch {
	case !d.cutTaken() && state.token != "" && state.token != Unheld && d.o.Hold == nil:
		d.wait(ReasonLocked, messageSilent, whileLocked)
	case d.membersComeSoon(state):
		d.await(state, whileFresh)
	case state.named != nil:
		d.Content, d.Step = state.named, Name
	case !d.cutTaken() || ready(d.o.Content) != state.ready:
		d.Content, d.Step = state.reported(d.o.Content), Report
	case d.locked():
		if state.token != "" && (state.token != Unheld || !state.ready) {
			// The hold is not read after the VM is unlocked; that there was none stays known.
			d.Snapshot.Status.CreationTime = state.taken
			d.indicate(state)
		}
		d.indicateWithoutDisks()
		d.Step = Unlock
	case !state.ready:
		d.Snapshot.Status.CreationTime = state.taken
		d.await(state, whileStored)
	default:
		d.succeed(state)
	}
}

// spoiled fails a snapshot that can't become complete any more.
func (d *decision) spoiled(state state) bool {
	switch {
	case state.foreign != "":
		d.fail(ReasonForeign, state.foreign)
	case state.lost != "":
		d.fail(ReasonVolumeSnapshotLost, state.lost)
	case state.strange != "":
		d.fail(ReasonOtherVolumes, state.strange)
	case d.cutTaken() && len(state.missing) > 0:
		d.fail(ReasonVolumeSnapshotLost, fmt.Sprintf("the VolumeSnapshot %s was deleted before it was ready to use", state.missing[0].Name))
	case d.cutTaken():
	case !d.locked():
		d.fail(ReasonSourceLost, fmt.Sprintf("the lock of the VM %s was lost before its disks were snapshotted", d.o.Snapshot.Spec.Source.Name))
	default:
		d.breaks(state)
	}
	return Ended(d.Snapshot)
}

// Progressing already says that the driver is at work.
func (d *decision) await(s state, after time.Duration) {
	d.After = after
	if s.trouble != "" {
		d.wait(ReasonLocked, s.trouble, after)
	} else if said := d.awaited(); condition.Refusal(said) != "" {
		d.set(snapshotv1.ConditionProgressing, corev1.ConditionTrue, ReasonLocked, condition.Doing(said))
		d.ready(corev1.ConditionFalse, condition.Doing(said))
	}
}

// wait reports the present work, or an obstacle before the VM is locked, and leaves the end to the deadline.
func (d *decision) wait(reason, message string, after time.Duration) {
	status := corev1.ConditionFalse
	if reason == ReasonLocked {
		status = corev1.ConditionTrue
	}
	d.progressing(status, reason, message)
	d.ready(corev1.ConditionFalse, message)
	d.After = after
}

// deadline returns the snapshot's time limit, 0 for none, and the rest of it.
func (d *decision) deadline() (all, left time.Duration) {
	all = snapshotv1.DefaultFailureDeadline
	if own := d.o.Snapshot.Spec.FailureDeadline; own != nil {
		all = own.Duration
	}
	return all, d.o.Snapshot.CreationTimestamp.Add(all).Sub(d.o.Now)
}

func (d *decision) expire() {
	deadline, left := d.deadline()
	if deadline == 0 || Ended(d.Snapshot) || d.Step == Unlock {
		return
	}
	if left > 0 {
		d.After, d.Timeout = min(d.After, left), min(d.Timeout, left)
		return
	}
	d.fail(ReasonDeadline, fmt.Sprintf("the snapshot was not complete within %v: %s", deadline, d.awaited()))
}
