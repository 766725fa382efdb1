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
	"drydock.dev/drydock/internal/rules/backoff"
	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

// Finalizer keeps a snapshot until its VM is unlocked.
const Finalizer = "snapshot.kubevirt.io/vmsnapshot-protection"

// How long until the next look: while the VM is locked, which keeps it from starting; while the
// storage driver only has to finish; and while something else has to happen first.
const (
	whileLocked = 250 * time.Millisecond
	whileStored = time.Second
	whileWaits  = 5 * time.Second
	longestWait = time.Minute
)

// Observed is what a decision is made on. All of it is what the API server itself has said, but for
// a snapshot that has succeeded.
type Observed struct {
	Snapshot *snapshotv1.VirtualMachineSnapshot
	// Supported means that the cluster serves VolumeSnapshots.
	Supported bool
	// VM is the source, nil when there is none.
	VM *v1.VirtualMachine
	// VMI is the VM's, nil if it has none that has not ended.
	VMI *v1.VirtualMachineInstance
	// Hold is what holds the guest still, or has held it last; nil if nobody could be asked, or it does not matter
	// (AsksHold). It is newer than VolumeSnapshots.
	Hold *launch.Hold
	// Content is the snapshot's, nil when there is none.
	Content *snapshotv1.VirtualMachineSnapshotContent
	// Disks are the VM's volumes on claims, observed as long as there is no content.
	Disks []Disk
	// GroupClasses are the VolumeGroupSnapshotClasses, observed as long as there is no content, and Labeled the claims
	// with the VM's GroupLabel, in order, observed as long as there is no Group.
	GroupClasses []Class
	Labeled      []string
	// VolumeSnapshots are those that the content names, by name; those that don't exist are missing.
	VolumeSnapshots map[string]VolumeSnapshot
	// Group is the VolumeGroupSnapshot of a content that is by one, nil if there is none; and Volumes what is behind the
	// claims, by the PersistentVolume, observed when Group is taken and the content has no names yet.
	Group   *Group
	Volumes map[string]Volume
	// Revisions are the ControllerRevisions of Revisions that exist, and whether the content is an owner of each;
	// observed as long as HoldsRevisions.
	Revisions map[string]bool
	Now       time.Time
}

// Step is one thing to do.
type Step string

// The steps. After each of them but Rest the loop looks again at once.
const (
	// Rest has nothing done but the status written.
	Rest Step = ""
	// Hold puts the finalizer on the snapshot, Release takes it off.
	Hold    Step = "put the finalizer on"
	Release Step = "take the finalizer off"
	// Lock makes the VM's status name the snapshot, Unlock no longer. Before that it lets the guest go on.
	Lock   Step = "lock the VM"
	Unlock Step = "unlock the VM"
	// MakeContent makes the content of Plan.
	MakeContent Step = "make the content"
	// HoldRevisions makes the content an owner of the ControllerRevisions of Plan.
	HoldRevisions Step = "hold the revisions that the VM goes by"
	// Quiesce has the guest held still for as long as Plan says.
	Quiesce Step = "hold the guest still"
	// Cut makes the VolumeSnapshots of Plan, or its VolumeGroupSnapshot.
	Cut Step = "make the VolumeSnapshots"
	// Name writes the names of a group's VolumeSnapshots into the content.
	Name Step = "write the names of the VolumeSnapshots into the content"
	// Report writes the content's status, and lets the guest go on if that says that the cuts are taken.
	Report Step = "write the content's status"
	// Discard deletes the content, and with it its VolumeSnapshots.
	Discard Step = "delete the content"
)

// Plan is the status to write, and then one step.
type Plan struct {
	// Snapshot carries the wanted status; never nil.
	Snapshot *snapshotv1.VirtualMachineSnapshot
	Step     Step
	// Content is the one to make, or the one with the status or the names to write.
	Content *snapshotv1.VirtualMachineSnapshotContent
	// Labels is to be changed before the content, or Group, is made; nil for nothing to change.
	Labels *Labels
	// Revisions are the names of the ControllerRevisions to hold.
	Revisions []string
	// Cuts are the VolumeSnapshots to make, or Group is the VolumeGroupSnapshot.
	Cuts  []NewVolumeSnapshot
	Group *NewGroup
	// Timeout is how long the guest may be held still.
	Timeout time.Duration
	// After asks for another look at a later time; zero for none.
	After time.Duration
}

// decision is a Plan in the making.
type decision struct {
	Plan
	o Observed
}

// Decide returns the plan for what was observed.
func Decide(o Observed) Plan {
	d := &decision{Plan: Plan{Snapshot: o.Snapshot.DeepCopy()}, o: o}
	if d.Snapshot.Status == nil {
		d.Snapshot.Status = &snapshotv1.VirtualMachineSnapshotStatus{}
	}
	switch phase := d.Snapshot.Status.Phase; {
	case o.Snapshot.DeletionTimestamp != nil:
		d.goAway()
	case !slices.Contains(o.Snapshot.Finalizers, Finalizer) && !Ended(o.Snapshot):
		d.Step = Hold
	case phase == snapshotv1.Succeeded:
		d.watchContent()
	case phase == snapshotv1.Failed:
		d.takeBack()
	default:
		d.progress()
	}
	return d.Plan
}

// Ended reports whether the snapshot has succeeded or failed.
func Ended(s *snapshotv1.VirtualMachineSnapshot) bool {
	return s.Status != nil && (s.Status.Phase == snapshotv1.Succeeded || s.Status.Phase == snapshotv1.Failed)
}

// locked reports whether the VM is locked by this snapshot.
func (d *decision) locked() bool {
	return d.o.VM != nil && d.o.VM.Status.SnapshotInProgress != nil && *d.o.VM.Status.SnapshotInProgress == d.o.Snapshot.Name
}

// goAway lets the VM go before the snapshot. The content follows by ownership; one that is to be
// retained has no owner.
func (d *decision) goAway() {
	if !slices.Contains(d.Snapshot.Finalizers, Finalizer) {
		return
	}
	incomplete := !Ended(d.o.Snapshot) || d.Snapshot.Status.Phase == snapshotv1.Failed
	d.Snapshot.Status.Phase = snapshotv1.Deleting
	d.progressing(corev1.ConditionFalse, ReasonDeleting, "the snapshot is being deleted")
	d.ready(corev1.ConditionFalse, ReasonDeleting, "the snapshot is being deleted")
	switch {
	case d.locked():
		d.Step = Unlock
	case incomplete && d.content() && !ready(d.o.Content):
		// Nobody can use it, whatever the deletion policy says.
		d.Step = Discard
	default:
		d.Step = Release
	}
}

// content reports whether there is a content that is not on its way out.
func (d *decision) content() bool {
	return d.o.Content != nil && d.o.Content.DeletionTimestamp == nil
}

func ready(c *snapshotv1.VirtualMachineSnapshotContent) bool {
	return c.Status != nil && c.Status.ReadyToUse != nil && *c.Status.ReadyToUse
}

// takeBack undoes what a snapshot that has failed has done.
func (d *decision) takeBack() {
	switch {
	case d.locked():
		d.Step = Unlock
	case d.content():
		d.Step = Discard
	}
}

// watchContent keeps saying whether the snapshot can be used.
func (d *decision) watchContent() {
	if d.content() {
		return
	}
	d.Snapshot.Status.ReadyToUse = new(false)
	d.ready(corev1.ConditionFalse, ReasonContentGone, "the VirtualMachineSnapshotContent "+ContentName(d.o.Snapshot)+" was deleted; the snapshot can't be restored")
}

// again is when to look again at what something else has to end: the sooner, the younger it is. Events of the VM come
// sooner.
func (d *decision) again() time.Duration {
	return backoff.Growing(d.o.Now.Sub(d.o.Snapshot.CreationTimestamp.Time), whileWaits, longestWait)
}

// progress is what is next for a snapshot that has not ended.
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

// recall restores a status that somebody has cleared, as far as the content knows it.
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

// lost says why the source can't be snapshotted any more, "" when it can.
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

// begin locks the VM and makes the content.
func (d *decision) begin() {
	vm := d.o.VM
	switch {
	case vm == nil:
		d.wait(ReasonWaiting, fmt.Sprintf("the VM %s does not exist", d.o.Snapshot.Spec.Source.Name), d.again())
	case vm.Status.RestoreInProgress != nil:
		d.wait(ReasonWaiting, fmt.Sprintf("the VM %s is being restored by %s", vm.Name, *vm.Status.RestoreInProgress), d.again())
	case vm.Status.SnapshotInProgress != nil && !d.locked():
		d.wait(ReasonWaiting, fmt.Sprintf("the snapshot %s of the VM %s is in progress", *vm.Status.SnapshotInProgress, vm.Name), d.again())
	case maintained(vm) && !d.locked():
		d.wait(ReasonWaiting, waitsForMaintenance(vm), d.again())
	case vm.Spec.Template == nil:
		d.fail(ReasonSourceLost, fmt.Sprintf("the VM %s has no template", vm.Name))
	case unsteady(d.o.VMI) != "":
		d.wait(ReasonWaiting, unsteady(d.o.VMI), d.again())
	case shapeless(vm) != "":
		d.wait(ReasonWaiting, shapeless(vm), whileStored)
	case !d.locked():
		// What comes next is said already, which saves a write.
		d.Snapshot.Status.SourceUID = &vm.UID
		d.selectDisks()
		if !Ended(d.Snapshot) {
			d.Step, d.After = Lock, 0
		}
	case d.selectDisks():
		d.Content, d.Step = newContent(d.o), MakeContent
		d.Labels = d.labels(d.Content)
	}
}

// maintained reports whether the VM is locked for a maintenance pod. A lock that comes later waits for the snapshot:
// both are written into the VM on condition that it is as it was read.
func maintained(vm *v1.VirtualMachine) bool {
	_, locked := lock.Of(vm)
	return locked
}

func waitsForMaintenance(vm *v1.VirtualMachine) string {
	l, _ := lock.Of(vm)
	return fmt.Sprintf("the VM %s is in maintenance mode: its disks are locked for the pod %s", vm.Name, l.Pod)
}

// selectDisks says which disks are included, and reports false if that can't be said yet, or there are none.
func (d *decision) selectDisks() bool {
	var included, excluded, reasons []string
	for _, disk := range d.o.Disks {
		switch {
		case disk.Waits != "":
			d.wait(ReasonWaiting, disk.Waits, whileStored)
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
	for _, volume := range ephemeral(vmSpec(d.o.VM), d.o.VMI) {
		excluded, reasons = append(excluded, volume), append(reasons, volume+" (it was plugged into the guest that runs, and is not in the VM's spec)")
	}
	d.Snapshot.Status.SnapshotVolumes = &snapshotv1.SnapshotVolumesLists{IncludedVolumes: included, ExcludedVolumes: excluded}
	message := messageCutting
	if len(reasons) > 0 {
		message = messageExcluded + strings.Join(reasons, "; ")
	}
	d.wait(ReasonInProgress, message, 0)
	d.Snapshot.Status.VirtualMachineSnapshotContentName = new(ContentName(d.o.Snapshot))
	return true
}

// cutTaken reports whether the content says that every disk's state is kept.
func (d *decision) cutTaken() bool {
	return d.o.Content != nil && d.o.Content.Status != nil && d.o.Content.Status.CreationTime != nil
}

// cut makes the VolumeSnapshots of the content and awaits them.
func (d *decision) cut() {
	state := survey(d.o)
	switch {
	case d.spoiled(state), d.holdRevisions():
	case len(state.missing) > 0 || state.group != nil:
		d.make(state)
	case state.taken == nil:
		d.await(state, d.whileHeld())
	default:
		d.taken(state)
	}
}

// taken has it written, step by step, that every disk's state is kept.
func (d *decision) taken(state state) {
	switch {
	case !d.cutTaken() && state.token != "" && state.token != Unheld && d.o.Hold == nil:
		d.wait(ReasonInProgress, messageSilent, whileLocked)
	case d.membersComeSoon(state):
		d.await(state, whileFresh)
	case state.named != nil:
		d.Content, d.Step = state.named, Name
	case !d.reported(state):
		d.Content, d.Step = state.reported(d.o.Content), Report
	case d.locked():
		if state.token != "" && (state.token != Unheld || !state.ready) {
			// What held the guest is not asked for any more when the VM is unlocked; that nothing did is known longer.
			d.Snapshot.Status.CreationTime = state.taken
			d.indicate(state)
		}
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

// await waits for the driver. What it says is passed on; that it is at work is said already.
func (d *decision) await(s state, after time.Duration) {
	d.After = after
	if s.trouble != "" {
		d.wait(ReasonInProgress, s.trouble, after)
	} else if said := d.awaited(); condition.Refusal(said) != "" {
		d.set(snapshotv1.ConditionProgressing, corev1.ConditionTrue, ReasonInProgress, condition.Doing(said))
		d.ready(corev1.ConditionFalse, ReasonInProgress, condition.Doing(said))
	}
}

// reported reports whether the content's status says what is known of its VolumeSnapshots.
func (d *decision) reported(s state) bool {
	return d.cutTaken() && ready(d.o.Content) == s.ready
}

// wait says what is waited for, and leaves the rest to the deadline.
func (d *decision) wait(reason, message string, after time.Duration) {
	d.progressing(corev1.ConditionTrue, reason, message)
	d.ready(corev1.ConditionFalse, reason, message)
	d.After = after
}

// deadline is how long the snapshot may take, 0 for no limit, and how much of that is left.
func (d *decision) deadline() (all, left time.Duration) {
	all = snapshotv1.DefaultFailureDeadline
	if own := d.o.Snapshot.Spec.FailureDeadline; own != nil {
		all = own.Duration
	}
	return all, d.o.Snapshot.CreationTimestamp.Add(all).Sub(d.o.Now)
}

// expire makes a snapshot fail that has not ended in time.
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
