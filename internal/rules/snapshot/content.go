package snapshot

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

var (
	snapshotKind = snapshotv1.SchemeGroupVersion.WithKind("VirtualMachineSnapshot")
	contentKind  = snapshotv1.SchemeGroupVersion.WithKind("VirtualMachineSnapshotContent")
)

// Disk is a volume of the VM on a claim.
type Disk struct {
	Volume string
	Claim  *corev1.PersistentVolumeClaim
	// Driver is the CSI driver of the claim's volume, "" if unknown or none.
	Driver string
	// Class is the VolumeSnapshotClass, or "" with the reason in Why.
	Class, Why string
	// Waits is why the claim can't be snapshotted yet.
	Waits string
}

// VolumeSnapshot is an observed VolumeSnapshot.
type VolumeSnapshot struct {
	UID string
	// Owner is its controller's UID.
	Owner string
	// Token is that of the hold on the guest, "" without a guest.
	Token string
	// Taken is nil until the driver has taken it.
	Taken *metav1.Time
	Ready bool
	Error string
	// Size is the minimum of a claim restored from it, nil if the driver does not report one.
	Size *resource.Quantity
}

// NewVolumeSnapshot is one to create; Owner is its content.
type NewVolumeSnapshot struct {
	Name, Claim, Class string
	// TokenAnnotation stores the Token.
	Token  string
	Owner  metav1.OwnerReference
	Labels map[string]string
}

// Labels of a VolumeSnapshot that name its VM.
const (
	sourceNameLabel      = "snapshot.kubevirt.io/source-vm-name"
	sourceNamespaceLabel = "snapshot.kubevirt.io/source-vm-namespace"
)

// sourceLabels returns them if the VM's name is short enough.
func sourceLabels(content *snapshotv1.VirtualMachineSnapshotContent) map[string]string {
	of := content.Spec.Source.VirtualMachine
	if of == nil || len(validation.IsValidLabelValue(of.Name)) > 0 {
		return nil
	}
	return map[string]string{sourceNameLabel: of.Name, sourceNamespaceLabel: content.Namespace}
}

// TokenAnnotation has the token of a VolumeSnapshot.
const TokenAnnotation = "drydock.dev/hold"

// ContentName names a snapshot's content; it cannot be guessed before the snapshot exists.
func ContentName(s *snapshotv1.VirtualMachineSnapshot) string {
	return "vmsnapshot-content-" + string(s.UID)
}

// ClassAnnotation has the VolumeSnapshotClass, on the content's copy of a claim.
const ClassAnnotation = "drydock.dev/volume-snapshot-class"

// newContent requires that the VM is locked.
func newContent(o Observed) *snapshotv1.VirtualMachineSnapshotContent {
	content := &snapshotv1.VirtualMachineSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Snapshot.Namespace, Name: ContentName(o.Snapshot)},
		Spec: snapshotv1.VirtualMachineSnapshotContentSpec{
			VirtualMachineSnapshotName: &o.Snapshot.Name,
			Source:                     snapshotv1.SourceSpec{VirtualMachine: kept(o.VM)},
		},
	}
	if p := o.Snapshot.Spec.DeletionPolicy; p == nil || *p == snapshotv1.VirtualMachineSnapshotContentDelete {
		content.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o.Snapshot, snapshotKind)}
	}
	class := groupClass(o.Disks, o.GroupClasses)
	for _, disk := range o.Disks {
		if disk.Class != "" {
			content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, newBackup(o.Snapshot, disk, class))
		}
	}
	return content
}

// newBackup returns the content's entry for a disk. group is the class of a VolumeGroupSnapshot of all disks; others
// name its members.
func newBackup(s *snapshotv1.VirtualMachineSnapshot, disk Disk, group string) snapshotv1.VolumeBackup {
	claim := disk.Claim
	backup := snapshotv1.VolumeBackup{
		VolumeName: disk.Volume,
		PersistentVolumeClaim: snapshotv1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: claim.Namespace, Name: claim.Name, Labels: claim.Labels,
				Annotations: with(unapplied(claim.Annotations), ClassAnnotation, disk.Class),
			},
			Spec: *claim.Spec.DeepCopy(),
		},
	}
	// A user's values must not be taken for ours.
	delete(backup.PersistentVolumeClaim.Annotations, GroupClassAnnotation)
	delete(backup.PersistentVolumeClaim.Annotations, MemberAnnotation)
	if group != "" {
		backup.PersistentVolumeClaim.Annotations[GroupClassAnnotation] = group
		return backup
	}
	name := fmt.Sprintf("vmsnapshot-%s-volume-%s", s.UID, disk.Volume)
	if disk.Volume == stateclaim.Volume {
		// No volume can have this name.
		name = fmt.Sprintf("vmsnapshot-%s-state", s.UID)
	}
	backup.VolumeSnapshotName = &name
	return backup
}

// kept returns the content's copy of a VM. Of the status it only has the references to revisions.
func kept(vm *v1.VirtualMachine) *snapshotv1.VirtualMachine {
	out := &snapshotv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: vm.Name, UID: vm.UID, Labels: vm.Labels, Annotations: unapplied(vm.Annotations),
		},
		Spec: *vm.Spec.DeepCopy(),
	}
	toType, toPreference := instancetype.References(vm)
	if toType != nil {
		out.Status.InstancetypeRef = toType.StatusOf(toType.Revision())
	}
	if toPreference != nil {
		out.Status.PreferenceRef = toPreference.StatusOf(toPreference.Revision())
	}
	return out
}

// unapplied removes kubectl's manifest.
func unapplied(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	delete(out, corev1.LastAppliedConfigAnnotation)
	return out
}

func with(annotations map[string]string, key, value string) map[string]string {
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	return annotations
}

type state struct {
	missing []NewVolumeSnapshot
	// group is the VolumeGroupSnapshot to create, named the content with its members' names.
	group *NewGroup
	named *snapshotv1.VirtualMachineSnapshotContent
	// Failures: another owner's object has the name, a group or member is gone, or the group has the wrong volumes.
	foreign, lost, strange string
	// made counts the existing ones. token is their common token; mixed means that they differ.
	made  int
	token string
	mixed bool
	// taken is the time of the last snapshot, nil while one is missing.
	taken *metav1.Time
	ready bool
	// trouble has the driver's error for an unfinished one.
	trouble string
	volumes []snapshotv1.VolumeSnapshotStatus
}

func summarize(o Observed) state {
	if ByGroup(o.Content) {
		return summarizeGroup(o)
	}
	s := state{ready: true, taken: &metav1.Time{}}
	if len(o.Content.Spec.VolumeBackups) == 0 {
		s.taken = &o.Content.CreationTimestamp
	}
	for i := range o.Content.Spec.VolumeBackups {
		backup := &o.Content.Spec.VolumeBackups[i]
		name := *backup.VolumeSnapshotName
		snapshot, exists := o.VolumeSnapshots[name]
		switch {
		case !exists:
			s.missing = append(s.missing, NewVolumeSnapshot{
				Name: name, Claim: backup.PersistentVolumeClaim.Name, Class: backup.PersistentVolumeClaim.Annotations[ClassAnnotation],
				Owner: *metav1.NewControllerRef(o.Content, contentKind), Labels: sourceLabels(o.Content),
			})
			s.taken, s.ready = nil, false
		case !IsOf(o.Content, backup, snapshot):
			s.foreign = fmt.Sprintf("the VolumeSnapshot %s was made by somebody else", name)
		default:
			s.add(name, snapshot)
		}
	}
	return s
}

func (s *state) add(name string, v VolumeSnapshot) {
	s.mixed = s.mixed || s.made > 0 && s.token != v.Token
	s.made, s.token = s.made+1, v.Token
	switch {
	case v.Taken == nil:
		s.taken = nil
	case s.taken != nil && s.taken.Before(v.Taken):
		s.taken = v.Taken
	}
	s.addVolumeSnapshot(name, v)
}

func (s *state) addVolumeSnapshot(name string, v VolumeSnapshot) {
	status := snapshotv1.VolumeSnapshotStatus{VolumeSnapshotName: name, CreationTime: v.Taken, ReadyToUse: new(v.Ready)}
	if v.Error != "" {
		status.Error = &snapshotv1.Error{Message: &v.Error}
	}
	s.volumes = append(s.volumes, status)
	if v.Ready && v.Taken != nil {
		return
	}
	s.ready = false
	if v.Error != "" {
		s.trouble = fmt.Sprintf("the storage driver has not finished the VolumeSnapshot %s: %s", name, v.Error)
	}
}

func (s *state) reported(content *snapshotv1.VirtualMachineSnapshotContent) *snapshotv1.VirtualMachineSnapshotContent {
	out := content.DeepCopy()
	out.Status = &snapshotv1.VirtualMachineSnapshotContentStatus{CreationTime: s.taken, ReadyToUse: new(s.ready), VolumeSnapshotStatus: s.volumes}
	return out
}
