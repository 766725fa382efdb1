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

	"drydock.dev/drydock/internal/rules/vmstate"
)

// kinds that refer to each other.
var (
	snapshotKind = snapshotv1.SchemeGroupVersion.WithKind("VirtualMachineSnapshot")
	contentKind  = snapshotv1.SchemeGroupVersion.WithKind("VirtualMachineSnapshotContent")
)

// Disk is a volume of the VM whose content is on a claim.
type Disk struct {
	Volume string
	Claim  *corev1.PersistentVolumeClaim
	// Driver is the CSI driver of the claim's volume, "" if that is not known or has none.
	Driver string
	// Class is the VolumeSnapshotClass that fits the claim's driver; "" when there is none, and then
	// Why says so.
	Class, Why string
	// Waits says why the claim can't be snapshotted yet.
	Waits string
}

// VolumeSnapshot is what is known of one VolumeSnapshot.
type VolumeSnapshot struct {
	UID string
	// Owner is the UID of its controller.
	Owner string
	// Token is of the hold on the guest under which it was made, "" if there was no guest.
	Token string
	// Taken is when the state was kept, nil before that.
	Taken *metav1.Time
	Ready bool
	// Error is what the driver says.
	Error string
	// Size is what a claim needs that it is restored to, nil when the driver does not say.
	Size *resource.Quantity
}

// NewVolumeSnapshot is a VolumeSnapshot to make; Owner is its content.
type NewVolumeSnapshot struct {
	Name, Claim, Class string
	// Token is of the hold on the guest, "" if there is none. It is kept in TokenAnnotation.
	Token  string
	Owner  metav1.OwnerReference
	Labels map[string]string
}

// Labels of a VolumeSnapshot: the VM that it is of.
const (
	sourceNameLabel      = "snapshot.kubevirt.io/source-vm-name"
	sourceNamespaceLabel = "snapshot.kubevirt.io/source-vm-namespace"
)

// sourceLabels name the VM of a content, if its name is short enough for a label.
func sourceLabels(content *snapshotv1.VirtualMachineSnapshotContent) map[string]string {
	of := content.Spec.Source.VirtualMachine
	if of == nil || len(validation.IsValidLabelValue(of.Name)) > 0 {
		return nil
	}
	return map[string]string{sourceNameLabel: of.Name, sourceNamespaceLabel: content.Namespace}
}

// TokenAnnotation has the token of a VolumeSnapshot of a VM that runs.
const TokenAnnotation = "drydock.dev/hold"

// ContentName is the name of a snapshot's content. Nobody can know it before the snapshot exists.
func ContentName(s *snapshotv1.VirtualMachineSnapshot) string {
	return "vmsnapshot-content-" + string(s.UID)
}

// ClassAnnotation has the VolumeSnapshotClass of a claim's VolumeSnapshot, on the claim as the content keeps it.
const ClassAnnotation = "drydock.dev/volume-snapshot-class"

// newContent is the content of a snapshot whose VM is locked.
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

// newBackup is what the content says of a disk; group is the class of all disks' VolumeGroupSnapshot, "" for none, whose
// members get their names from others.
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
	// What a user has put there says nothing.
	delete(backup.PersistentVolumeClaim.Annotations, GroupClassAnnotation)
	delete(backup.PersistentVolumeClaim.Annotations, MemberAnnotation)
	if group != "" {
		backup.PersistentVolumeClaim.Annotations[GroupClassAnnotation] = group
		return backup
	}
	backup.VolumeSnapshotName = new(volumeSnapshotName(s, disk.Volume))
	return backup
}

// volumeSnapshotName is the name of a volume's VolumeSnapshot. That of the VM's state is none that a volume can have.
func volumeSnapshotName(s *snapshotv1.VirtualMachineSnapshot, volume string) string {
	if volume == vmstate.Volume {
		return fmt.Sprintf("vmsnapshot-%s-state", s.UID)
	}
	return fmt.Sprintf("vmsnapshot-%s-volume-%s", s.UID, volume)
}

// kept is what a content keeps of a VM; of its status only what it goes by.
func kept(vm *v1.VirtualMachine) *snapshotv1.VirtualMachine {
	out := &snapshotv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: vm.Name, UID: vm.UID, Labels: vm.Labels, Annotations: unapplied(vm.Annotations),
		},
		Spec: *vm.Spec.DeepCopy(),
	}
	keepShape(out, vm)
	return out
}

// unapplied is a copy of annotations without the manifest that kubectl keeps there.
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

// state is what the VolumeSnapshots of a content say together.
type state struct {
	missing []NewVolumeSnapshot
	// group is the VolumeGroupSnapshot to make, and named the content with the names of its members, nil for neither.
	group *NewGroup
	named *snapshotv1.VirtualMachineSnapshotContent
	// foreign says which name is taken by somebody else, lost what of a group is gone, and strange which volumes it has
	// that it should not have, or lacks.
	foreign, lost, strange string
	// made is how many there are; token is that of all of them, and mixed means that they have several.
	made  int
	token string
	mixed bool
	// taken is when the last cut was taken, nil while one is missing.
	taken *metav1.Time
	ready bool
	// trouble is what the driver says of one that it has not finished.
	trouble string
	volumes []snapshotv1.VolumeSnapshotStatus
}

// survey looks at every VolumeSnapshot of the content.
func survey(o Observed) state {
	if ByGroup(o.Content) {
		return surveyGroup(o)
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

// add takes a VolumeSnapshot of the content into account.
func (s *state) add(name string, v VolumeSnapshot) {
	s.mixed = s.mixed || s.made > 0 && s.token != v.Token
	s.made, s.token = s.made+1, v.Token
	switch {
	case v.Taken == nil:
		s.taken = nil
	case s.taken != nil && s.taken.Before(v.Taken):
		s.taken = v.Taken
	}
	s.note(name, v)
}

// note takes into account how far a VolumeSnapshot is.
func (s *state) note(name string, v VolumeSnapshot) {
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

// reported is the content with a status that says what is known.
func (s *state) reported(content *snapshotv1.VirtualMachineSnapshotContent) *snapshotv1.VirtualMachineSnapshotContent {
	out := content.DeepCopy()
	out.Status = &snapshotv1.VirtualMachineSnapshotContentStatus{CreationTime: s.taken, ReadyToUse: new(s.ready), VolumeSnapshotStatus: s.volumes}
	return out
}
