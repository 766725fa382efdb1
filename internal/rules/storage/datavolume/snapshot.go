package datavolume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// The storage driver restores a VolumeSnapshot to the DataVolume's claim if namespace and volume mode are the same.
// Otherwise it restores it to a second claim, and two workers copy that like the source of a clone:
//
//	the DataVolume's claim is bound               the claim RestoredName is created in the snapshot's namespace
//	that claim is bound, or waits for a consumer  the workers are created
//	the copy is complete                          the source pod is deleted, then the claim RestoredName

// RestoredName returns the name of the claim from which a snapshot is copied.
func RestoredName(dv *cdiv1.DataVolume) string { return string(dv.UID) + restoredSuffix }

const restoredSuffix = "-snapshot"

// RestoredKey returns the claim RestoredName, without a name when the DataVolume can't have one.
func RestoredKey(dv *cdiv1.DataVolume) types.NamespacedName {
	namespace, kind, _ := SourceOf(&dv.Spec, dv.Namespace)
	if kind != kindSnapshot && kind != kindSourceRef {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: namespace, Name: RestoredName(dv)}
}

// restorable reports whether the driver can restore the snapshot to the DataVolume's own claim.
func restorable(o Observed) bool {
	namespace, _, _ := SourceOf(&o.DataVolume.Spec, o.DataVolume.Namespace)
	mode := o.Source.SnapshotMode
	return namespace == o.DataVolume.Namespace && (mode == "" || IsBlock(newClaim(o, methodCopy)) == (mode == corev1.PersistentVolumeBlock))
}

func snapshotOf(source *cdiv1.DataVolumeSourceSnapshot) *corev1.TypedLocalObjectReference {
	apiGroup := "snapshot.storage.k8s.io"
	return &corev1.TypedLocalObjectReference{APIGroup: &apiGroup, Kind: "VolumeSnapshot", Name: source.Name}
}

func newRestored(o Observed) *corev1.PersistentVolumeClaim {
	dv, to := o.DataVolume, o.Claim
	namespace, _, _ := SourceOf(&dv.Spec, dv.Namespace)
	size := to.Spec.Resources.Requests[corev1.ResourceStorage]
	if o.Source.RestoreSize > 0 {
		size = *resource.NewQuantity(o.Source.RestoreSize, resource.BinarySI)
	}
	mode := o.Source.SnapshotMode
	if mode == "" {
		mode = corev1.PersistentVolumeFilesystem
		if IsBlock(to) {
			mode = corev1.PersistentVolumeBlock
		}
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: RestoredName(dv), Namespace: namespace,
			Labels: withOurs(nil), Annotations: map[string]string{AnnTarget: dv.Namespace + "/" + dv.Name},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &mode,
			StorageClassName: to.Spec.StorageClassName, DataSource: snapshotOf(dv.Spec.Source.Snapshot),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
		},
	}
	if namespace == dv.Namespace {
		claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	}
	return claim
}

func (d *decision) copiesSnapshot() bool {
	return d.how == methodCopy && d.DataVolume.Spec.Source.Snapshot != nil
}

// restore plans the claim RestoredName and reports whether the workers have to wait for it.
func (d *decision) restore() (wait bool, stop *obstacle) {
	claim := d.Restored
	switch {
	case !d.copiesSnapshot() || d.worker.completed:
		return false, nil
	case claim == nil:
		if stop := unusableSnapshot(d.Observed); stop != nil {
			return true, stop
		}
		if d.needsFinalizer() {
			d.plan.AddFinalizer = true
		} else {
			d.plan.CreateRestored = newRestored(d.Observed)
		}
		d.plan.Again = true
		return true, nil
	case claim.DeletionTimestamp != nil && d.SourcePod == nil:
		return true, &obstacle{reason: ReasonSourceNotReady, message: fmt.Sprintf("the claim %s/%s, from which the VolumeSnapshot is copied, "+
			"is being deleted; another is made when it is gone", claim.Namespace, claim.Name), passing: true}
	case !ours(d.DataVolume, claim) || !equality.Semantic.DeepEqual(claim.Spec.DataSource, snapshotOf(d.DataVolume.Spec.Source.Snapshot)):
		return true, &obstacle{reason: ReasonExists, message: fmt.Sprintf("the claim %s/%s exists and is not of this DataVolume: delete it",
			claim.Namespace, claim.Name)}
	}
	// The source pod is the first consumer of a class that waits for one.
	return d.restoring() && !waits(d.Class), nil
}

func ours(dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[AnnTarget] == dv.Namespace+"/"+dv.Name
}

func (d *decision) restoring() bool {
	return d.copiesSnapshot() && d.Restored != nil && d.Restored.Status.Phase != corev1.ClaimBound
}
