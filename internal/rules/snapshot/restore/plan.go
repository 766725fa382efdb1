package restore

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/machine/identity"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/snapshot"
)

// Finalizer keeps a restore until its unfinished work is undone.
const Finalizer = "snapshot.kubevirt.io/vmrestore-protection"

// LastRestore is a VM's annotation that names its last restore.
const LastRestore = "restore.kubevirt.io/lastRestoreUID"

// Requeue intervals: while claims are being filled, and while the restore waits for something else.
const (
	whileFilled = time.Second
	whileWaits  = 5 * time.Second
	longestWait = time.Minute
)

// Observed is the input of a decision, read from the API server.
type Observed struct {
	Restore  *snapshotv1.VirtualMachineRestore
	Snapshot *snapshotv1.VirtualMachineSnapshot
	Content  *snapshotv1.VirtualMachineSnapshotContent
	// VM is the target. Guest means that it has a VMI that has not ended.
	VM    *v1.VirtualMachine
	Guest bool
	// VolumeSnapshots are the content's, by name.
	VolumeSnapshots map[string]snapshot.VolumeSnapshot
	// Claims are those of ClaimNames. Fillers has the UIDs of DataVolumes that control them and have their names.
	Claims  map[string]*corev1.PersistentVolumeClaim
	Fillers map[string]types.UID
	// Waits has the storage classes that bind a claim only when a pod uses it.
	Waits map[string]bool
	Now   time.Time
}

// Step is one action of a plan.
type Step string

// The steps. Each but Rest requeues at once.
const (
	// Rest only writes the status.
	Rest    Step = ""
	Hold    Step = "put the finalizer on"
	Release Step = "take the finalizer off"
	// Lock records the restore in the VM's status, Unlock removes it.
	Lock   Step = "lock the VM"
	Unlock Step = "unlock the VM"
	// Adopt makes the VM the restore's owner.
	Adopt      Step = "give the restore its owner"
	Stop       Step = "stop the VM"
	MakeClaims Step = "make the claims"
	// DropClaims deletes Plan.Claims, with the DataVolumes of their names that control them.
	DropClaims Step = "delete claims"
	// Switch writes the spec of Plan.VM.
	Switch Step = "change the VM"
	MakeVM Step = "make the VM"
	// Admit lets a created VM start, by the annotations of Plan.VM.
	Admit Step = "let the VM start"
	// Own makes the VM an owner of Plan.Claims.
	Own Step = "give the claims their owner"
)

// Plan is the status to write, followed by one step.
type Plan struct {
	// Restore has the desired status; never nil.
	Restore *snapshotv1.VirtualMachineRestore
	Step    Step
	VM      *v1.VirtualMachine
	Claims  []*corev1.PersistentVolumeClaim
	// After is the requeue delay.
	After time.Duration
}

type decision struct {
	Plan
	o Observed
	// verb is the operation on the target.
	verb identity.Verb
}

// Decide returns the plan for an observation.
func Decide(o Observed) Plan {
	d := &decision{Plan: Plan{Restore: o.Restore.DeepCopy()}, o: o, verb: identity.RestoreToNew}
	if d.Restore.Status == nil {
		d.Restore.Status = &snapshotv1.VirtualMachineRestoreStatus{Complete: new(false)}
	}
	switch {
	case o.Restore.DeletionTimestamp != nil:
		d.decideDeletion()
	case Complete(o.Restore):
		// Later changes are not the restore's.
	case Failed(o.Restore):
		d.undo()
	case !slices.Contains(o.Restore.Finalizers, Finalizer):
		d.Step = Hold
	case d.switched():
		d.finish()
	default:
		d.progress()
	}
	return d.Plan
}

// Complete reports whether the restore has succeeded.
func Complete(r *snapshotv1.VirtualMachineRestore) bool {
	return r.Status != nil && r.Status.Complete != nil && *r.Status.Complete
}

func mark(r *snapshotv1.VirtualMachineRestore) string { return r.Name + "-" + string(r.UID) }

func (d *decision) switched() bool {
	return d.o.VM != nil && d.o.VM.Annotations[LastRestore] == mark(d.o.Restore)
}

func (d *decision) locked() bool {
	return d.o.VM != nil && d.o.VM.Status.RestoreInProgress != nil && *d.o.VM.Status.RestoreInProgress == d.o.Restore.Name
}

// decideDeletion finishes a restore that has made its switch, and undoes any other.
func (d *decision) decideDeletion() {
	switch {
	case !slices.Contains(d.o.Restore.Finalizers, Finalizer):
		return
	case d.switched() && !Complete(d.o.Restore):
		d.finish()
		if d.Step != Rest {
			return
		}
	case !Complete(d.o.Restore):
		d.undo()
		if d.Step != Rest {
			return
		}
	}
	d.Step = Release
}

func (d *decision) undo() {
	// A claim that has replaced the target's is the target's disk, complete or not.
	replaced := policy(d.o.Restore) == snapshotv1.VolumeRestorePolicyInPlace && d.locked()
	switch made := d.made(); {
	case len(made) > 0 && !d.switched() && !replaced:
		d.Claims, d.Step = made, DropClaims
	case d.locked():
		d.Step = Unlock
	}
}

// made returns this restore's claims, except those being deleted.
func (d *decision) made() []*corev1.PersistentVolumeClaim {
	var out []*corev1.PersistentVolumeClaim
	for _, name := range d.names() {
		if claim := d.o.Claims[name]; claim != nil && d.ours(claim) && claim.DeletionTimestamp == nil {
			out = append(out, claim)
		}
	}
	return out
}

// names returns the names of the disks' claims in the status.
func (d *decision) names() []string {
	var names []string
	for _, volume := range d.Restore.Status.Restores {
		if volume.VolumeName != stateclaim.Volume {
			names = append(names, volume.PersistentVolumeClaimName)
		}
	}
	return names
}

// again returns the requeue interval for an external obstacle. Events of the VM come sooner.
func (d *decision) again() time.Duration {
	return backoff.Growing(d.o.Now.Sub(d.o.Restore.CreationTimestamp.Time), whileWaits, longestWait)
}

func (d *decision) progress() {
	s, c := d.o.Snapshot, d.o.Content
	switch name := d.o.Restore.Spec.VirtualMachineSnapshotName; {
	case s == nil && len(d.Restore.Status.Restores) > 0:
		d.fail(ReasonSourceLost, fmt.Sprintf("the snapshot %s was deleted while it was being restored", name))
	case s == nil:
		d.wait(ReasonWaiting, fmt.Sprintf("the snapshot %s does not exist", name), d.again())
	case s.DeletionTimestamp != nil:
		d.fail(ReasonSourceLost, fmt.Sprintf("the snapshot %s is being deleted", name))
	case s.Status != nil && s.Status.Phase == snapshotv1.Failed:
		d.fail(ReasonSourceLost, fmt.Sprintf("the snapshot %s has failed, and can't be restored", name))
	case !snapshot.Ended(s):
		d.wait(ReasonWaiting, fmt.Sprintf("the snapshot %s is not ready to use yet", name), d.again())
	case c == nil || c.DeletionTimestamp != nil || c.Spec.Source.VirtualMachine == nil:
		d.fail(ReasonSourceLost, fmt.Sprintf("the content %s of the snapshot %s was deleted", snapshot.ContentName(s), name))
	default:
		d.chooseTarget()
	}
}

func (d *decision) chooseTarget() {
	vm, name := d.o.VM, d.o.Restore.Spec.Target.Name
	c := d.progressing()
	hadTarget := c != nil && work(c) == ReasonInPlace
	switch source := d.o.Content.Spec.Source.VirtualMachine; {
	case vm == nil && hadTarget:
		d.fail(ReasonTargetLost, fmt.Sprintf("the VM %s was deleted while it was being restored", name))
	case vm == nil:
		d.restore()
	case vm.UID != source.UID:
		d.fail(ReasonTargetExists, fmt.Sprintf("the VM %s exists and is not the one of the snapshot (%s): restore to a name that no VM has, or to the snapshot's own VM", name, source.Name))
	case vm.DeletionTimestamp != nil:
		d.fail(ReasonTargetLost, fmt.Sprintf("the VM %s is being deleted", name))
	default:
		d.verb = identity.RestoreInPlace
		d.prepareTarget()
	}
}

func (d *decision) doing() string {
	if d.verb == identity.RestoreInPlace {
		return ReasonInPlace
	}
	return ReasonNewVM
}

// prepareTarget stops the target or waits for its end, and locks it.
func (d *decision) prepareTarget() {
	vm := d.o.VM
	switch {
	case d.o.Guest:
		d.stop()
	case vm.Status.SnapshotInProgress != nil:
		d.wait(ReasonWaiting, fmt.Sprintf("the snapshot %s of the VM %s is in progress", *vm.Status.SnapshotInProgress, vm.Name), d.again())
	case vm.Status.RestoreInProgress != nil && !d.locked():
		d.wait(ReasonWaiting, fmt.Sprintf("the VM %s is being restored by %s", vm.Name, *vm.Status.RestoreInProgress), d.again())
	case !d.locked() && maintained(vm):
		d.wait(ReasonWaiting, fmt.Sprintf("the VM %s is in maintenance mode: its disks are locked for a pod", vm.Name), d.again())
	case d.adopts():
	case !d.locked():
		d.say(ReasonInPlace, "the VM is being locked")
		d.Step = Lock
	default:
		d.restore()
	}
}

// maintained reports whether the VM is locked for a maintenance pod. A later lock waits for the restore: both are
// written on condition of the VM's resourceVersion.
func maintained(vm *v1.VirtualMachine) bool {
	_, locked := lock.Of(vm)
	return locked
}

// stop applies the restore's targetReadinessPolicy to a running target.
func (d *decision) stop() {
	policy, name := snapshotv1.VirtualMachineRestoreWaitGracePeriodAndFail, d.o.VM.Name
	if p := d.o.Restore.Spec.TargetReadinessPolicy; p != nil {
		policy = *p
	}
	waits := fmt.Sprintf("the VM %s runs: stop it", name)
	switch policy {
	case snapshotv1.VirtualMachineRestoreStopTarget:
		d.wait(ReasonTargetRuns, fmt.Sprintf("the VM %s is being stopped", name), whileFilled)
		if strategy, err := d.o.VM.RunStrategy(); err == nil && strategy == v1.RunStrategyHalted {
			return
		}
		d.VM, d.Step, d.After = halted(d.o.VM), Stop, 0
	case snapshotv1.VirtualMachineRestoreFailImmediate:
		d.fail(ReasonTargetRuns, fmt.Sprintf("the VM %s runs, and the restore asks not to wait for it", name))
	case snapshotv1.VirtualMachineRestoreWaitEventually:
		d.wait(ReasonTargetRuns, waits, d.again())
	default:
		left := d.o.Restore.CreationTimestamp.Add(snapshotv1.DefaultGracePeriod).Sub(d.o.Now)
		if left <= 0 {
			d.fail(ReasonTargetRuns, fmt.Sprintf("the VM %s was not stopped within %v", name, snapshotv1.DefaultGracePeriod))
			return
		}
		d.wait(ReasonTargetRuns, waits, min(d.again(), left))
	}
}

// restore creates the claims and, when all exist, plans the switch.
func (d *decision) restore() {
	volumes, err := d.volumes()
	if err == nil {
		d.VM, err = d.manifest(volumes)
	}
	if err != nil {
		d.fail(ReasonRefused, err.Error())
		return
	}
	d.Restore.Status.Restores = slices.Clip(volumes)
	if d.keepsState(d.VM) {
		state := snapshotv1.VolumeRestore{VolumeName: stateclaim.Volume, VolumeSnapshotName: *d.backup(stateclaim.Volume).VolumeSnapshotName}
		// Until the VM exists, the claim has no name.
		if d.VM.UID != "" {
			state.PersistentVolumeClaimName = stateclaim.ClaimOf(d.VM)
		}
		d.Restore.Status.Restores = append(d.Restore.Status.Restores, state)
	}
	d.say(d.doing(), "the claims are being made")
	if !d.claims(volumes) {
		return
	}
	d.Step = MakeVM
	if d.verb == identity.RestoreInPlace {
		d.Step = Switch
	}
}

type progressOfClaims struct {
	missing, inTheWay []*corev1.PersistentVolumeClaim
	// awaited is a temporary obstacle.
	awaited string
	// reason and failure are set if a claim is impossible.
	reason, failure string
}

// claims plans the creation of every claim, and reports whether the VM can have them.
func (d *decision) claims(volumes []snapshotv1.VolumeRestore) bool {
	var p progressOfClaims
	for i := range volumes {
		if d.judge(&p, &volumes[i]); p.failure != "" {
			d.abandon(p.reason, p.failure)
			return false
		}
	}
	if d.judgeState(&p); p.failure != "" {
		d.abandon(p.reason, p.failure)
		return false
	}
	switch {
	case p.awaited != "":
		d.await(d.doing(), p.awaited)
	case len(p.inTheWay) > 0:
		d.Claims, d.Step = p.inTheWay, DropClaims
		// DataVolumes are deleted with their claims.
		deleted := &d.Restore.Status.DeletedDataVolumes
		for _, claim := range d.Claims {
			if d.o.Fillers[claim.Name] != "" && !slices.Contains(*deleted, claim.Name) {
				*deleted = append(*deleted, claim.Name)
			}
		}
	case len(p.missing) > 0:
		d.Claims, d.Step = p.missing, MakeClaims
	default:
		return true
	}
	return false
}

func (d *decision) judge(p *progressOfClaims, volume *snapshotv1.VolumeRestore) {
	backup, claim := d.backup(volume.VolumeName), d.o.Claims[volume.PersistentVolumeClaimName]
	source, exists := d.o.VolumeSnapshots[volume.VolumeSnapshotName]
	bound := claim != nil && d.ours(claim) && claim.Status.Phase == corev1.ClaimBound
	switch {
	case !bound && (!exists || !snapshot.IsOf(d.o.Content, backup, source)):
		p.reason, p.failure = ReasonSourceLost, fmt.Sprintf("the VolumeSnapshot %s of the volume %s was deleted", volume.VolumeSnapshotName, backup.VolumeName)
	case claim == nil && !source.Ready:
		p.awaited = fmt.Sprintf("the VolumeSnapshot %s is not ready to use", volume.VolumeSnapshotName)
	case claim == nil:
		p.missing = append(p.missing, d.newClaim(backup, volume, source))
	default:
		d.judgeExisting(p, backup, claim)
	}
}

func (d *decision) judgeExisting(p *progressOfClaims, backup *snapshotv1.VolumeBackup, claim *corev1.PersistentVolumeClaim) {
	// In place, the disk's original claim must be replaced.
	mayReplace := policy(d.o.Restore) == snapshotv1.VolumeRestorePolicyInPlace && d.verb == identity.RestoreInPlace &&
		claim.Name == backup.PersistentVolumeClaim.Name
	switch ours := d.ours(claim); {
	case claim.DeletionTimestamp != nil:
		p.awaited = fmt.Sprintf("the claim %s is being deleted", claim.Name)
	case !ours && !mayReplace:
		p.reason, p.failure = ReasonNameTaken, fmt.Sprintf("the claim %s exists, and is not the restore's to replace", claim.Name)
	case !ours:
		p.inTheWay = append(p.inTheWay, claim)
	case claim.Status.Phase == corev1.ClaimLost:
		p.reason, p.failure = ReasonSourceLost, fmt.Sprintf("the volume of the claim %s is lost", claim.Name)
	case claim.Status.Phase != corev1.ClaimBound && !d.waits(claim):
		p.awaited = fmt.Sprintf("the storage driver has not filled the claim %s yet", claim.Name)
	}
}

// abandon fails the restore. It waits instead if a claim of the target that the restore replaces is gone.
func (d *decision) abandon(reason, message string) {
	replaces := policy(d.o.Restore) == snapshotv1.VolumeRestorePolicyInPlace && d.verb == identity.RestoreInPlace
	if replaces && slices.ContainsFunc(d.names(), func(name string) bool {
		claim := d.o.Claims[name]
		return claim == nil || d.ours(claim)
	}) {
		d.wait(d.doing(), message, d.again())
		return
	}
	d.fail(reason, message)
}

// adopts makes the VM the owner of the restore, unless it has a controller: a clone's is deleted with the clone. It
// reports whether that is left to do.
func (d *decision) adopts() bool {
	if metav1.GetControllerOf(d.o.Restore) != nil || d.o.Restore.DeletionTimestamp != nil {
		return false
	}
	d.Step = Adopt
	return true
}

// Owner returns the owner reference that deletes a restore with its VM.
func Owner(vm *v1.VirtualMachine) metav1.OwnerReference {
	return *metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)
}

// waits reports whether the claim is bound only when a pod uses it.
func (d *decision) waits(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.StorageClassName != nil && d.o.Waits[*claim.Spec.StorageClassName]
}

// finish decides the actions after the switch.
func (d *decision) finish() {
	if d.adopts() || !d.finishState() {
		return
	}
	if owner := d.o.Restore.Spec.VolumeOwnershipPolicy; owner == nil || *owner == snapshotv1.VolumeOwnershipPolicyVm {
		for _, claim := range d.made() {
			if !owned(claim, d.o.VM) {
				claim = claim.DeepCopy()
				claim.OwnerReferences = append(claim.OwnerReferences, ownerRef(d.o.VM))
				d.Claims = append(d.Claims, claim)
			}
		}
	}
	switch {
	case len(d.Claims) > 0:
		d.Step = Own
	case d.locked():
		d.Step = Unlock
	case d.awaited():
		d.VM = d.o.VM.DeepCopy()
		delete(d.VM.Annotations, stateclaim.AwaitedAnnotation)
		d.Step = Admit
	default:
		d.succeed()
	}
}

func owned(claim *corev1.PersistentVolumeClaim, vm *v1.VirtualMachine) bool {
	return slices.ContainsFunc(claim.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == vm.UID })
}

// ownerRef returns the reference that deletes a claim with its VM, without controlling it.
func ownerRef(vm *v1.VirtualMachine) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1.GroupVersion.String(), Kind: v1.VirtualMachineGroupVersionKind.Kind, Name: vm.Name, UID: vm.UID,
	}
}
