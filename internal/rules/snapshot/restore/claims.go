package restore

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/snapshot"
)

// Annotations of a restore's claim: the restore's name, for readers, and its UID.
const (
	nameAnnotation = "restore.kubevirt.io/name"
	uidAnnotation  = "drydock.dev/restore-uid"
)

// Labels of a restore's claim name the snapshot's VM.
const (
	SourceNameLabel      = "restore.kubevirt.io/source-vm-name"
	SourceNamespaceLabel = "restore.kubevirt.io/source-vm-namespace"
)

// SourceOf returns the VM from whose snapshot a claim was restored, "" for another claim. Users can write labels, so one
// with a VM of another namespace does not count.
func SourceOf(claim *corev1.PersistentVolumeClaim) string {
	if claim.Labels[SourceNamespaceLabel] != claim.Namespace {
		return ""
	}
	return claim.Labels[SourceNameLabel]
}

func policy(r *snapshotv1.VirtualMachineRestore) snapshotv1.VolumeRestorePolicy {
	if r.Spec.VolumeRestorePolicy == nil {
		return snapshotv1.VolumeRestorePolicyRandomizeNames
	}
	return *r.Spec.VolumeRestorePolicy
}

// Volumes returns the claims of the content's disks, without the VM's state.
func Volumes(r *snapshotv1.VirtualMachineRestore, content *snapshotv1.VirtualMachineSnapshotContent) ([]snapshotv1.VolumeRestore, error) {
	var out []snapshotv1.VolumeRestore
	taken := map[string]bool{}
	for i := range content.Spec.VolumeBackups {
		backup := &content.Spec.VolumeBackups[i]
		if backup.VolumeSnapshotName == nil || backup.VolumeName == stateclaim.Volume {
			continue
		}
		name := claimName(r, backup)
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return nil, fmt.Errorf("the volume %s would be restored to the claim %q, which is no name of a claim: %s; give it another one in volumeRestoreOverrides",
				backup.VolumeName, name, strings.Join(problems, "; "))
		}
		if taken[name] {
			return nil, fmt.Errorf("two volumes would be restored to the claim %s; give each its own in volumeRestoreOverrides", name)
		}
		taken[name] = true
		out = append(out, snapshotv1.VolumeRestore{
			VolumeName: backup.VolumeName, PersistentVolumeClaimName: name, VolumeSnapshotName: *backup.VolumeSnapshotName,
		})
	}
	return out, nil
}

func claimName(r *snapshotv1.VirtualMachineRestore, backup *snapshotv1.VolumeBackup) string {
	if o := override(r, backup.VolumeName); o.RestoreName != "" {
		return o.RestoreName
	}
	switch policy(r) {
	case snapshotv1.VolumeRestorePolicyInPlace:
		return backup.PersistentVolumeClaim.Name
	case snapshotv1.VolumeRestorePolicyPrefixTargetName:
		return r.Spec.Target.Name + "-" + backup.VolumeName
	}
	return fmt.Sprintf("restore-%s-%s", r.UID, backup.VolumeName)
}

func override(r *snapshotv1.VirtualMachineRestore, volume string) snapshotv1.VolumeRestoreOverride {
	for _, o := range r.Spec.VolumeRestoreOverrides {
		if o.VolumeName == volume {
			return o
		}
	}
	return snapshotv1.VolumeRestoreOverride{}
}

// volumes returns the volumes to restore, after a check of the overrides.
func (d *decision) volumes() ([]snapshotv1.VolumeRestore, error) {
	volumes, err := Volumes(d.o.Restore, d.o.Content)
	if err != nil {
		return nil, err
	}
	for _, o := range d.o.Restore.Spec.VolumeRestoreOverrides {
		if o.VolumeName == stateclaim.Volume {
			return nil, fmt.Errorf("volumeRestoreOverrides names the VM's state (%s), whose claim has a name that follows from the VM's", stateclaim.Volume)
		}
		if d.backup(o.VolumeName) == nil {
			return nil, fmt.Errorf("volumeRestoreOverrides names the volume %s, which the snapshot does not have", o.VolumeName)
		}
	}
	return volumes, nil
}

func (d *decision) backup(volume string) *snapshotv1.VolumeBackup {
	for i := range d.o.Content.Spec.VolumeBackups {
		if d.o.Content.Spec.VolumeBackups[i].VolumeName == volume {
			return &d.o.Content.Spec.VolumeBackups[i]
		}
	}
	return nil
}

func (d *decision) newClaim(backup *snapshotv1.VolumeBackup, to *snapshotv1.VolumeRestore, source snapshot.VolumeSnapshot) *corev1.PersistentVolumeClaim {
	was, asked := &backup.PersistentVolumeClaim, override(d.o.Restore, backup.VolumeName)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.o.Restore.Namespace, Name: to.PersistentVolumeClaimName,
			Labels: users(was.Labels, asked.Labels), Annotations: users(was.Annotations, asked.Annotations),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: was.Spec.AccessModes, VolumeMode: was.Spec.VolumeMode, StorageClassName: was.Spec.StorageClassName,
			VolumeAttributesClassName: was.Spec.VolumeAttributesClassName,
			Resources:                 *was.Spec.Resources.DeepCopy(),
		},
	}
	d.fill(claim, to, source)
	return claim
}

func (d *decision) fill(claim *corev1.PersistentVolumeClaim, to *snapshotv1.VolumeRestore, source snapshot.VolumeSnapshot) {
	if claim.Annotations == nil {
		claim.Annotations = map[string]string{}
	}
	if of := d.o.Content.Spec.Source.VirtualMachine; len(validation.IsValidLabelValue(of.Name)) == 0 {
		metav1.SetMetaDataLabel(&claim.ObjectMeta, SourceNameLabel, of.Name)
		metav1.SetMetaDataLabel(&claim.ObjectMeta, SourceNamespaceLabel, d.o.Restore.Namespace)
	}
	claim.Annotations[nameAnnotation], claim.Annotations[uidAnnotation] = d.o.Restore.Name, string(d.o.Restore.UID)
	claim.Spec.DataSource = &corev1.TypedLocalObjectReference{
		APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: to.VolumeSnapshotName,
	}
	// A claim must be as large as its source, whose volume may have been larger than its claim's request.
	if size := claim.Spec.Resources.Requests[corev1.ResourceStorage]; source.Size != nil && source.Size.Cmp(size) > 0 {
		if claim.Spec.Resources.Requests == nil {
			claim.Spec.Resources.Requests = corev1.ResourceList{}
		}
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = *source.Size
	}
}

// users omits labels and annotations that programs maintain, which would be wrong for the new claim.
func users(was, asked map[string]string) map[string]string {
	out := maps.Clone(was)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, asked)
	maps.DeleteFunc(out, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return domain == "drydock.dev" || strings.HasSuffix(domain, "kubernetes.io") || strings.HasSuffix(domain, "kubevirt.io")
	})
	return out
}

func (d *decision) ours(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[uidAnnotation] == string(d.o.Restore.UID)
}
