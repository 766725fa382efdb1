package datavolume

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

const mebibyte = 1 << 20

const (
	// AnnDefaultVirtClass marks the default class for disks of virtual machines.
	AnnDefaultVirtClass = "storageclass.kubevirt.io/is-default-virt-class"
	annDefaultClass     = "storageclass.kubernetes.io/is-default-class"
)

// Class returns the named storage class; for a nil name the default class for virtual machines, or else that of
// Kubernetes.
func Class(classes []storagev1.StorageClass, name *string) *storagev1.StorageClass {
	if name != nil {
		if i := slices.IndexFunc(classes, func(c storagev1.StorageClass) bool { return c.Name == *name }); i >= 0 {
			return &classes[i]
		}
		return nil
	}
	for _, annotation := range []string{AnnDefaultVirtClass, annDefaultClass} {
		var newest *storagev1.StorageClass
		for i := range classes {
			c := &classes[i]
			// Kubernetes takes the newest of several defaults, too.
			if c.Annotations[annotation] == "true" && (newest == nil || newest.CreationTimestamp.Before(&c.CreationTimestamp)) {
				newest = c
			}
		}
		if newest != nil {
			return newest
		}
	}
	return nil
}

// ClassName returns the DataVolume's class, nil for the default class.
func ClassName(dv *cdiv1.DataVolume) *string {
	switch {
	case dv.Spec.PVC != nil:
		return dv.Spec.PVC.StorageClassName
	case dv.Spec.Storage != nil:
		return dv.Spec.Storage.StorageClassName
	}
	return nil
}

func waits(class *storagev1.StorageClass) bool {
	return class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

func newClaim(o Observed, how method) *corev1.PersistentVolumeClaim {
	dv := o.DataVolume
	annotations := map[string]string{}
	for name, value := range dv.Annotations {
		switch name {
		// These are valid on a DataVolume only.
		case corev1.LastAppliedConfigAnnotation, AnnCloneAllowed, AnnAdoption, AnnPrePopulated, AnnPopulatedFor, AnnSource:
		default:
			annotations[name] = value
		}
	}
	annotations[layout.AnnContentType] = string(contentType(dv))
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: dv.Name, Namespace: dv.Namespace,
			Labels:          withOurs(dv.Labels),
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))},
		},
	}
	if dv.Spec.PVC != nil {
		dv.Spec.PVC.DeepCopyInto(&claim.Spec)
	} else {
		claim.Spec = fromStorage(o)
	}
	if claim.Spec.StorageClassName == nil && o.Class != nil {
		name := o.Class.Name
		claim.Spec.StorageClassName = &name
	}
	if dv.Spec.SourceRef != nil {
		claim.Annotations[AnnSource] = chosen(dv)
	}
	switch how {
	case methodUpload:
		claim.Annotations[layout.AnnUploadTarget] = ""
	case methodClone:
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: dv.Spec.Source.PVC.Name}
	case methodRestore:
		claim.Spec.DataSource = snapshotOf(dv.Spec.Source.Snapshot)
	}
	if preallocate(o) && claim.Spec.DataSource == nil {
		claim.Annotations[volumeclaim.AnnPreallocation] = "true"
	}
	return claim
}

func withOurs(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out[LabelApp] = LabelAppValue
	return out
}

func contentType(dv *cdiv1.DataVolume) cdiv1.DataVolumeContentType {
	if dv.Spec.ContentType == "" {
		return cdiv1.DataVolumeKubeVirt
	}
	return dv.Spec.ContentType
}

func fromStorage(o Observed) corev1.PersistentVolumeClaimSpec {
	s := o.DataVolume.Spec.Storage
	spec := corev1.PersistentVolumeClaimSpec{
		AccessModes: slices.Clone(s.AccessModes), Selector: s.Selector.DeepCopy(), VolumeName: s.VolumeName,
		StorageClassName: s.StorageClassName, Resources: *s.Resources.DeepCopy(),
	}
	mode := s.VolumeMode
	if mode != nil && *mode == cdiv1.PersistentVolumeFromStorageProfile {
		mode = nil
	}
	properties := propertySet(o, s.AccessModes, mode)
	if len(spec.AccessModes) == 0 {
		spec.AccessModes = slices.Clone(properties.AccessModes)
	}
	if mode == nil {
		mode = properties.VolumeMode
	}
	spec.VolumeMode = new(*mode)
	size := requested(o.DataVolume)
	if size == 0 && o.Source.Claim != nil {
		size = diskOf(o.Source.Claim, o.Config)
	}
	if size == 0 && o.Source.SnapshotMode == corev1.PersistentVolumeBlock {
		size = o.Source.RestoreSize
	}
	if *mode == corev1.PersistentVolumeFilesystem && contentType(o.DataVolume) == cdiv1.DataVolumeKubeVirt {
		size = withOverhead(size, o.Config.overheadOf(className(o.Class)))
	}
	if size == 0 && o.Source.RestoreSize > 0 {
		size = o.Source.RestoreSize
	}
	if spec.Resources.Requests == nil {
		spec.Resources.Requests = corev1.ResourceList{}
	}
	spec.Resources.Requests[corev1.ResourceStorage] = *resource.NewQuantity(size, resource.BinarySI)
	return spec
}

func className(class *storagev1.StorageClass) string {
	if class == nil {
		return ""
	}
	return class.Name
}

// propertySet returns, like CDI, the class's first property set with one of the user's access modes and the user's
// volume mode, or else its first one. Without sets it returns the modes that every class supports.
func propertySet(o Observed, modes []corev1.PersistentVolumeAccessMode, mode *corev1.PersistentVolumeMode) cdiv1.ClaimPropertySet {
	var sets []cdiv1.ClaimPropertySet
	if o.Profile != nil {
		sets = o.Profile.Spec.ClaimPropertySets
		if len(sets) == 0 {
			sets = o.Profile.Status.ClaimPropertySets
		}
	}
	var first *cdiv1.ClaimPropertySet
	for i, set := range sets {
		if set.VolumeMode == nil || len(set.AccessModes) == 0 {
			continue
		}
		wanted := func(m corev1.PersistentVolumeAccessMode) bool { return slices.Contains(modes, m) }
		if (len(modes) == 0 || slices.ContainsFunc(set.AccessModes, wanted)) && (mode == nil || *mode == *set.VolumeMode) {
			return set
		}
		if first == nil {
			first = &sets[i]
		}
	}
	if first != nil {
		return *first
	}
	return cdiv1.ClaimPropertySet{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		VolumeMode:  new(corev1.PersistentVolumeFilesystem),
	}
}

func requested(dv *cdiv1.DataVolume) int64 {
	var list corev1.ResourceList
	switch {
	case dv.Spec.PVC != nil:
		list = dv.Spec.PVC.Resources.Requests
	case dv.Spec.Storage != nil:
		list = dv.Spec.Storage.Resources.Requests
	}
	size := list[corev1.ResourceStorage]
	return size.Value()
}

// DiskSize returns the size in bytes of the claim's disk.
func DiskSize(o Observed) int64 {
	if size := requested(o.DataVolume); o.DataVolume.Spec.Storage != nil && size > 0 {
		return roundUp(size)
	}
	return diskOf(o.Claim, o.Config)
}

// diskOf returns the size in bytes of the largest disk that fits into the claim.
func diskOf(claim *corev1.PersistentVolumeClaim, config Config) int64 {
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	capacity, bound := claim.Status.Capacity[corev1.ResourceStorage]
	if IsBlock(claim) {
		if bound {
			size = capacity
		}
		return size.Value()
	}
	var class string
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	usable := math.Floor(float64(size.Value()) * (1 - config.overheadOf(class)))
	return int64(usable) / mebibyte * mebibyte
}

// withOverhead returns the size in bytes of the smallest claim that holds a disk and its file system.
func withOverhead(size int64, overhead float64) int64 {
	return roundUp(int64(math.Ceil(float64(roundUp(size)) / (1 - overhead))))
}

func roundUp(size int64) int64 { return (size + mebibyte - 1) / mebibyte * mebibyte }

// IsBlock reports whether the claim is a block device.
func IsBlock(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

// WantsImmediate reports whether the worker may be the claim's first consumer. As in CDI, the annotation may have any
// value.
func WantsImmediate(dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) bool {
	_, asked := dv.Annotations[layout.AnnImmediate]
	if !asked && claim != nil {
		_, asked = claim.Annotations[layout.AnnImmediate]
	}
	return asked
}
