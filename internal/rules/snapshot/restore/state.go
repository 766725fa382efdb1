package restore

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine/identity"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/snapshot"
)

// The claim of a VM's state is replaced or created once the VM has its disks, before the VM may start: the lock prevents
// that in place, and stateclaim.AwaitedAnnotation on a VM that is created.

// ClaimNames returns the claims that the decision needs: those in the status, or else those that follow from the
// restore, and that of the target's state.
func ClaimNames(o *Observed) []string {
	var volumes []snapshotv1.VolumeRestore
	if o.Restore.Status != nil {
		volumes = o.Restore.Status.Restores
	}
	if len(volumes) == 0 && o.Content != nil {
		// The decision reports problems with the names.
		volumes, _ = Volumes(o.Restore, o.Content)
	}
	var names []string
	hasState := o.Content != nil && slices.ContainsFunc(o.Content.Spec.VolumeBackups, func(b snapshotv1.VolumeBackup) bool {
		return b.VolumeName == stateclaim.Volume
	})
	for _, volume := range volumes {
		if volume.VolumeName == stateclaim.Volume {
			hasState = true
		} else {
			names = append(names, volume.PersistentVolumeClaimName)
		}
	}
	if o.VM != nil && hasState {
		names = append(names, layout.StateClaimName(o.VM.Name, string(o.VM.UID)))
	}
	return names
}

// verbOfState returns the operation as regards the VM's state. A VM that replaces a deleted one of that name counts as
// that VM. A clone's restore creates a machine of its own.
func (d *decision) verbOfState() identity.Verb {
	owner := metav1.GetControllerOf(d.o.Restore)
	switch {
	case owner != nil && owner.Kind == clonev1.VirtualMachineCloneKind.Kind:
		return identity.Clone
	case d.o.Restore.Spec.Target.Name == d.o.Content.Spec.Source.VirtualMachine.Name:
		return identity.RestoreInPlace
	}
	return identity.RestoreToNew
}

func (d *decision) keepsState(vm *v1.VirtualMachine) bool {
	backup := d.backup(stateclaim.Volume)
	return backup != nil && backup.VolumeSnapshotName != nil && stateclaim.ClaimOf(vm) != "" && identity.KeepsState(d.verbOfState())
}

func (d *decision) recordedState() *snapshotv1.VolumeRestore {
	all := d.Restore.Status.Restores
	at := slices.IndexFunc(all, func(v snapshotv1.VolumeRestore) bool { return v.VolumeName == stateclaim.Volume })
	if at < 0 {
		return nil
	}
	return &all[at]
}

func (d *decision) awaited() bool {
	return d.o.VM.Annotations[stateclaim.AwaitedAnnotation] == mark(d.o.Restore)
}

func (d *decision) done() string {
	if d.awaited() {
		return ReasonNewVM
	}
	return ReasonInPlace
}

// noSource returns why the state's VolumeSnapshot can't be used now; gone means never.
func (d *decision) noSource(to *snapshotv1.VolumeRestore) (why string, gone bool) {
	switch source, exists := d.o.VolumeSnapshots[to.VolumeSnapshotName]; {
	case d.o.Content == nil || !exists || !snapshot.IsOf(d.o.Content, d.backup(stateclaim.Volume), source):
		return fmt.Sprintf("the VolumeSnapshot %s of the VM's state was deleted", to.VolumeSnapshotName), true
	case !source.Ready:
		return fmt.Sprintf("the VolumeSnapshot %s is not ready to use", to.VolumeSnapshotName), false
	}
	return "", false
}

// judgeState checks before any change whether the VM's state can be restored afterwards.
func (d *decision) judgeState(p *progressOfClaims) {
	to := d.recordedState()
	if to == nil {
		return
	}
	why, gone := d.noSource(to)
	switch claim := d.o.Claims[to.PersistentVolumeClaimName]; {
	case gone:
		p.reason, p.failure = ReasonSourceLost, why
	case claim != nil && !metav1.IsControlledBy(claim, d.o.VM):
		p.reason, p.failure = ReasonNameTaken, stateclaim.Check(stateclaim.Next(d.VM), claim).Error()
	case p.awaited == "":
		p.awaited = why
	}
}

// finishState restores the state of a VM that has its disks, and reports whether that is done. It does not fail: the VM
// waits for its state, or until the restore is deleted.
func (d *decision) finishState() bool {
	to := d.recordedState()
	name := stateclaim.ClaimOf(d.o.VM)
	if to == nil || name == "" || d.o.Restore.DeletionTimestamp != nil {
		return true
	}
	to.PersistentVolumeClaimName = name
	claim := d.o.Claims[name]
	if claim != nil && metav1.IsControlledBy(claim, d.o.VM) && d.ours(claim) && claim.DeletionTimestamp == nil {
		return d.filled(claim)
	}
	switch {
	case d.o.Guest:
		d.wait(d.done(), fmt.Sprintf("the VM %s was started before its state was restored: stop it", d.o.VM.Name), d.again())
	case !d.locked() && !d.awaited():
		d.Step = Lock
	default:
		d.replaceState(to, claim)
	}
	return false
}

// replaceState replaces the claim of a VM that can't start.
func (d *decision) replaceState(to *snapshotv1.VolumeRestore, claim *corev1.PersistentVolumeClaim) {
	why, _ := d.noSource(to)
	switch {
	case claim != nil && !metav1.IsControlledBy(claim, d.o.VM):
		d.wait(d.done(), stateclaim.Check(stateclaim.Next(d.o.VM), claim).Error(), d.again())
	case claim != nil && claim.DeletionTimestamp != nil:
		d.await(d.done(), fmt.Sprintf("the claim %s is being deleted", claim.Name))
	case why != "":
		d.wait(d.done(), why, d.again())
	case claim != nil:
		d.Claims, d.Step = []*corev1.PersistentVolumeClaim{claim}, DropClaims
	default:
		d.Claims, d.Step = []*corev1.PersistentVolumeClaim{d.newState(to, d.o.VolumeSnapshots[to.VolumeSnapshotName])}, MakeClaims
	}
}

// filled reports whether the restored claim has the state, or will have it when a pod uses it.
func (d *decision) filled(claim *corev1.PersistentVolumeClaim) bool {
	if claim.Status.Phase == corev1.ClaimBound || claim.Status.Phase != corev1.ClaimLost && d.waits(claim) {
		return true
	}
	if claim.Status.Phase == corev1.ClaimLost {
		d.wait(d.done(), fmt.Sprintf("the volume of the claim %s is lost: delete the claim", claim.Name), whileFilled)
	} else {
		d.await(d.done(), fmt.Sprintf("the storage driver has not filled the claim %s yet", claim.Name))
	}
	return false
}

// newState returns the claim of the VM's state as its loop would create it, but from the VolumeSnapshot and with the
// original class and size.
func (d *decision) newState(to *snapshotv1.VolumeRestore, source snapshot.VolumeSnapshot) *corev1.PersistentVolumeClaim {
	was := d.backup(stateclaim.Volume).PersistentVolumeClaim.Spec
	claim := stateclaim.Claim(stateclaim.Next(d.o.VM), "", nil)
	claim.Name = to.PersistentVolumeClaimName
	claim.Spec.AccessModes, claim.Spec.StorageClassName = was.AccessModes, was.StorageClassName
	claim.Spec.VolumeAttributesClassName, claim.Spec.Resources = was.VolumeAttributesClassName, *was.Resources.DeepCopy()
	d.fill(claim, to, source)
	return claim
}
