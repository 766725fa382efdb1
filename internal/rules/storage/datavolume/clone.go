package datavolume

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Source is the source of a clone or a restore.
type Source struct {
	Claim  *corev1.PersistentVolumeClaim
	Volume *corev1.PersistentVolume
	// Unfilled names the DataVolume that has not filled Claim yet.
	Unfilled string
	// UsedBy names a pod that may write to Claim, if WritersAsked.
	UsedBy                        string
	WritersAsked                  bool
	SnapshotExists, SnapshotReady bool
	SnapshotDriver                string
	// RestoreSize is in bytes.
	RestoreSize int64
	// SnapshotMode is the mode of the volume in the snapshot, "" when it is unknown.
	SnapshotMode corev1.PersistentVolumeMode
}

// clonesVolumes lists CSI drivers that clone volumes, which the API does not tell. The cloneStrategy of the class's
// StorageProfile overrides it (decision 122).
var clonesVolumes = map[string]bool{
	"local.csi.drydock.dev":                 true,
	"rbd.csi.ceph.com":                      true,
	"cephfs.csi.ceph.com":                   true,
	"openshift-storage.rbd.csi.ceph.com":    true,
	"openshift-storage.cephfs.csi.ceph.com": true,
}

// AllowedSource returns the value of AnnCloneAllowed that the DataVolume needs, "" for none.
func AllowedSource(dv *cdiv1.DataVolume) string {
	namespace, kind, name := SourceOf(&dv.Spec, dv.Namespace)
	if ref := dv.Spec.SourceRef; ref != nil {
		namespace, kind, name = refNamespace(ref, dv.Namespace), kindSourceRef, ref.Name
	}
	if namespace == "" || namespace == dv.Namespace {
		return ""
	}
	return kind + "/" + namespace + "/" + name
}

// SourceOf returns the claim or snapshot that the DataVolume reads, or for an unresolved sourceRef the DataSource, whose
// namespace is that of its source.
func SourceOf(spec *cdiv1.DataVolumeSpec, own string) (namespace, kind, name string) {
	switch {
	case spec.Source == nil && spec.SourceRef != nil:
		return refNamespace(spec.SourceRef, own), kindSourceRef, spec.SourceRef.Name
	case spec.Source == nil:
		return "", "", ""
	case spec.Source.PVC != nil:
		namespace, kind, name = spec.Source.PVC.Namespace, "pvc", spec.Source.PVC.Name
	case spec.Source.Snapshot != nil:
		namespace, kind, name = spec.Source.Snapshot.Namespace, kindSnapshot, spec.Source.Snapshot.Name
	default:
		return "", "", ""
	}
	if namespace == "" {
		namespace = own
	}
	return namespace, kind, name
}

// driverClones reports whether the storage driver can make the clone without restricting where the claim can be bound.
// A driver's clone lies where its source lies: perhaps on a node where the awaited first consumer can't run.
func driverClones(o Observed) bool {
	source, volume := o.Source.Claim, o.Source.Volume
	if source == nil || volume == nil || o.Class == nil || volume.Spec.CSI == nil ||
		source.Namespace != o.DataVolume.Namespace || volume.Spec.CSI.Driver != o.Class.Provisioner {
		return false
	}
	if waits(o.Class) && (volume.Spec.NodeAffinity != nil || WantsImmediate(o.DataVolume, nil)) {
		return false
	}
	if !mayClone(o) {
		return false
	}
	claim := newClaim(o, methodCopy)
	if IsBlock(claim) != IsBlock(source) || contentType(o.DataVolume) != cdiv1.DataVolumeKubeVirt {
		return false
	}
	// A larger file system would still hold a disk of the source's size; a worker grows the disk.
	size, capacity := claim.Spec.Resources.Requests[corev1.ResourceStorage], source.Status.Capacity[corev1.ResourceStorage]
	return size.Cmp(capacity) == 0 || IsBlock(claim) && size.Cmp(capacity) > 0
}

func mayClone(o Observed) bool {
	if p := o.Profile; p != nil {
		for _, strategy := range []*cdiv1.CDICloneStrategy{p.Spec.CloneStrategy, p.Status.CloneStrategy} {
			if strategy != nil {
				return *strategy == cdiv1.CloneStrategyCsiClone
			}
		}
	}
	return clonesVolumes[o.Class.Provisioner]
}

// obstacle keeps a DataVolume in its phase.
type obstacle struct {
	reason, message string
	// A permanent obstacle fails the DataVolume. A passing one resolves itself and needs no warning.
	permanent, passing bool
}

func notAllowed(dv *cdiv1.DataVolume) *obstacle {
	allowed := AllowedSource(dv)
	if allowed == "" || dv.Annotations[AnnCloneAllowed] == allowed {
		return nil
	}
	namespace, kind, name := SourceOf(&dv.Spec, dv.Namespace)
	return &obstacle{reason: ReasonNotAllowed, message: fmt.Sprintf("the user who created this DataVolume may not read %s %s/%s: "+
		"create it again as a user who may create datavolumes/source in namespace %s", kind, namespace, name, namespace), permanent: true}
}

func unknownSource(o Observed) *obstacle {
	source := o.DataVolume.Spec.Source
	namespace, _, name := SourceOf(&o.DataVolume.Spec, o.DataVolume.Namespace)
	switch {
	case source.PVC == nil && source.Snapshot == nil:
		return nil
	case source.PVC == nil:
		return unusableSnapshot(o)
	case o.Source.Claim == nil:
		return &obstacle{reason: ReasonSourceNotFound, message: fmt.Sprintf("the source claim %s/%s does not exist", namespace, name)}
	case o.Source.Claim.Status.Phase != corev1.ClaimBound:
		return &obstacle{reason: ReasonSourceNotReady, message: fmt.Sprintf("the source claim %s/%s is not bound yet", namespace, name), passing: true}
	}
	return nil
}

func unusableSnapshot(o Observed) *obstacle {
	namespace, _, name := SourceOf(&o.DataVolume.Spec, o.DataVolume.Namespace)
	size := requested(o.DataVolume)
	switch {
	case !o.Source.SnapshotExists:
		return &obstacle{reason: ReasonSourceNotFound, message: fmt.Sprintf("the VolumeSnapshot %s/%s does not exist", namespace, name)}
	case !o.Source.SnapshotReady:
		return &obstacle{reason: ReasonSourceNotReady, message: fmt.Sprintf("the VolumeSnapshot %s/%s is not ready to use yet", namespace, name), passing: true}
	case o.Class != nil && o.Source.SnapshotDriver != "" && o.Source.SnapshotDriver != o.Class.Provisioner:
		return &obstacle{reason: ReasonIncompatible, message: fmt.Sprintf("the VolumeSnapshot %s/%s is of the driver %s, the class %s of %s: "+
			"name a class of the snapshot's driver", namespace, name, o.Source.SnapshotDriver, o.Class.Name, o.Class.Provisioner), permanent: true}
	case size > 0 && size < o.Source.RestoreSize && (o.Source.SnapshotMode != corev1.PersistentVolumeFilesystem || restorable(o)):
		// A disk is smaller than the file system that it is copied from.
		return &obstacle{reason: ReasonIncompatible, message: fmt.Sprintf("the VolumeSnapshot %s/%s needs %s, the DataVolume asks for %s",
			namespace, name, human(o.Source.RestoreSize), human(size)), permanent: true}
	}
	return nil
}

// busySource returns an obstacle while the source's content may change.
func busySource(o Observed) *obstacle {
	if o.DataVolume.Spec.Source.PVC == nil {
		return nil
	}
	namespace, _, name := SourceOf(&o.DataVolume.Spec, o.DataVolume.Namespace)
	switch {
	case o.Source.Unfilled != "":
		return &obstacle{reason: ReasonSourceNotReady, passing: true,
			message: fmt.Sprintf("the source claim %s/%s is not filled yet by its DataVolume %s", namespace, name, o.Source.Unfilled)}
	case AwaitsUpload(o.Source.Claim):
		return &obstacle{reason: ReasonSourceNotReady, message: uploadAwaited(o.Source.Claim)}
	case slices.Contains(Workers(name), o.Source.UsedBy):
		return &obstacle{reason: ReasonSourceNotReady, passing: true,
			message: fmt.Sprintf("pod %s/%s, which fills the source claim %s, has not ended yet", namespace, o.Source.UsedBy, name)}
	case o.Source.UsedBy != "":
		return &obstacle{reason: ReasonSourceInUse,
			message: fmt.Sprintf("pod %s/%s is using the source claim %s: stop it, and the clone begins", namespace, o.Source.UsedBy, name)}
	}
	return nil
}

func human(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
