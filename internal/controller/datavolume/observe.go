package datavolume

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/datavolume"
)

func (r *round) observe(ctx context.Context) (datavolume.Observed, error) {
	o := datavolume.Observed{DataVolume: r.dv, Confirmed: r.current, Now: r.Now()}
	for _, part := range []func(context.Context, *datavolume.Observed) error{r.observeClaim, r.lookUp, r.observePods, r.observeRestored, r.observeClass, r.observeSource} {
		if err := part(ctx, &o); err != nil {
			return o, err
		}
	}
	var err error
	o.Config, err = r.config(ctx)
	return o, err
}

func (r *Reconciler) config(ctx context.Context) (datavolume.Config, error) {
	var config cdiv1.CDIConfig
	err := r.Client.Get(ctx, client.ObjectKey{Name: datavolume.ConfigName}, &config)
	if client.IgnoreNotFound(err) != nil {
		return datavolume.Config{}, fmt.Errorf("reading the CDIConfig %s: %w", datavolume.ConfigName, err)
	}
	out := datavolume.ConfigOf(nil)
	if err == nil {
		out = datavolume.ConfigOf(&config)
	}
	out.DeniedNetworks, out.AllowedNetworks = r.DeniedNetworks, r.AllowedNetworks
	return out, nil
}

// observeClaim reads the claim of the DataVolume's name. One that this round created is newer than the cache.
func (r *round) observeClaim(ctx context.Context, o *datavolume.Observed) error {
	o.Claim = r.claim
	if o.Claim != nil {
		return nil
	}
	var claim corev1.PersistentVolumeClaim
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(r.dv), &claim)
	if apierrors.IsNotFound(err) {
		// The cache may not have the claim of an earlier round yet.
		err = r.Reader.Get(ctx, client.ObjectKeyFromObject(r.dv), &claim)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading the claim %s/%s: %w", r.dv.Namespace, r.dv.Name, err)
	}
	o.Claim, r.claim = &claim, &claim
	return nil
}

// lookUp resolves the DataVolume's sourceRef: to the source for which its claim was created, or without a claim to
// the DataSource's present one.
func (r *round) lookUp(ctx context.Context, o *datavolume.Observed) error {
	namespace, name, refers := datavolume.Refers(r.dv)
	if !refers || datavolume.Ended(r.dv) {
		return nil
	}
	source := datavolume.Chosen(r.dv, o.Claim)
	if source == nil {
		var reference cdiv1.DataSource
		found := &reference
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found)
		if apierrors.IsNotFound(err) {
			found, err = nil, nil
		}
		if err != nil {
			return fmt.Errorf("reading the DataSource %s/%s: %w", namespace, name, err)
		}
		o.Reference = datavolume.ResolveReference(found, namespace, name)
		source = o.Reference.Source
	}
	o.DataVolume = r.dv.DeepCopy()
	o.DataVolume.Spec.Source = source
	return nil
}

// observePods reads the worker's pod and, for a clone, the pod that sends.
func (r *round) observePods(ctx context.Context, o *datavolume.Observed) error {
	if o.Worker = r.worker; o.Worker == nil {
		pod, err := r.pod(ctx, client.ObjectKey{Namespace: r.dv.Namespace, Name: datavolume.WorkerName(r.dv)})
		if err != nil {
			return err
		}
		if pod != nil && !controlled(pod, r.dv) {
			o.Conflicting = true
			pod = nil
		}
		o.Worker = pod
	}
	namespace, kind, _ := datavolume.SourceOf(&r.dv.Spec, r.dv.Namespace)
	if o.SourcePod = r.source; o.SourcePod == nil && kind != "" {
		key, pod := client.ObjectKey{Namespace: namespace, Name: datavolume.SourcePodName(r.dv)}, &corev1.Pod{}
		found, err := r.exists(ctx, key, pod)
		if err != nil {
			return fmt.Errorf("reading the source pod %s: %w", key, err)
		}
		if found {
			o.SourcePod = pod
		}
	}
	return nil
}

func (r *round) observeRestored(ctx context.Context, o *datavolume.Observed) (err error) {
	o.Restored, err = r.restoredClaim(ctx, datavolume.RestoredKey(r.dv))
	return err
}

// restoredClaim reads the claim from which a snapshot is copied, nil for none.
func (r *round) restoredClaim(ctx context.Context, key client.ObjectKey) (*corev1.PersistentVolumeClaim, error) {
	if r.restored != nil || key.Name == "" {
		return r.restored, nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	switch found, err := r.exists(ctx, key, claim); {
	case err != nil:
		return nil, fmt.Errorf("reading the claim %s, from which a snapshot is copied: %w", key, err)
	case !found:
		return nil, nil
	}
	return claim, nil
}

// exists reads an object in the source's namespace and reports whether it exists. Before the DataVolume's finalizer
// is removed, the API server is asked.
func (r *round) exists(ctx context.Context, key client.ObjectKey, object client.Object) (bool, error) {
	err := r.Client.Get(ctx, key, object)
	ends := datavolume.Ended(r.dv) || r.dv.DeletionTimestamp != nil
	if apierrors.IsNotFound(err) && ends && slices.Contains(r.dv.Finalizers, datavolume.Finalizer) {
		err = r.Reader.Get(ctx, key, object)
	}
	return err == nil, client.IgnoreNotFound(err)
}

// pod reads a pod from the cache. A new pod can't be created twice, since its name is fixed.
func (r *Reconciler) pod(ctx context.Context, key client.ObjectKey) (*corev1.Pod, error) {
	var pod corev1.Pod
	err := r.Client.Get(ctx, key, &pod)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the worker pod %s: %w", key, err)
	}
	return &pod, nil
}

// observeClass reads the present or future storage class of the claim.
func (r *round) observeClass(ctx context.Context, o *datavolume.Observed) error {
	var list storagev1.StorageClassList
	if err := r.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing the storage classes: %w", err)
	}
	name := datavolume.ClassName(r.dv)
	if o.Claim != nil {
		name = o.Claim.Spec.StorageClassName
	}
	o.Class = datavolume.Class(list.Items, name)
	if o.Class == nil {
		return nil
	}
	var profile cdiv1.StorageProfile
	err := r.Client.Get(ctx, client.ObjectKey{Name: o.Class.Name}, &profile)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the StorageProfile %s: %w", o.Class.Name, err)
	}
	if err == nil {
		o.Profile = &profile
	}
	return nil
}

func (r *round) observeSource(ctx context.Context, o *datavolume.Observed) error {
	namespace, kind, name := datavolume.SourceOf(&o.DataVolume.Spec, r.dv.Namespace)
	if datavolume.Ended(r.dv) || r.dv.DeletionTimestamp != nil {
		return nil
	}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	switch kind {
	case "pvc":
		return r.observeSourceClaim(ctx, key, &o.Source)
	case "snapshot":
		snapshot, err := r.observeSnapshot(ctx, key, &o.Source)
		if err != nil || snapshot == nil || o.Claim != nil && o.Claim.Spec.DataSource != nil {
			return err
		}
		return r.observeContent(ctx, snapshot, &o.Source)
	}
	return nil
}

func (r *Reconciler) observeSourceClaim(ctx context.Context, key client.ObjectKey, s *datavolume.Source) error {
	var claim corev1.PersistentVolumeClaim
	err := r.Client.Get(ctx, key, &claim)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the source claim %s: %w", key, err)
	}
	s.Claim = &claim
	if claim.Spec.VolumeName != "" {
		var volume corev1.PersistentVolume
		err := r.Reader.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &volume)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading the volume %s of the source claim %s: %w", claim.Spec.VolumeName, key, err)
		}
		if err == nil {
			s.Volume = &volume
		}
	}
	if owner := metav1.GetControllerOf(&claim); owner != nil && owner.Kind == "DataVolume" {
		var filler cdiv1.DataVolume
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: owner.Name}, &filler)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading the DataVolume %s of the source claim: %w", owner.Name, err)
		}
		if err == nil && filler.UID == owner.UID && filler.Status.Phase != cdiv1.Succeeded {
			s.Unfilled = owner.Name
		}
	}
	return nil
}

// writer names a pod that may write to a claim, "" for none. Pods of all kinds are listed, and only now, so that they
// need not be cached.
func (r *round) writer(ctx context.Context, claim client.ObjectKey) (string, error) {
	var pods corev1.PodList
	if err := r.Reader.List(ctx, &pods, client.InNamespace(claim.Namespace)); err != nil {
		return "", fmt.Errorf("listing the pods that use the claim %s: %w", claim, err)
	}
	for i := range pods.Items {
		if datavolume.Writes(&pods.Items[i], claim.Name) {
			return pods.Items[i].Name, nil
		}
	}
	return "", nil
}

var snapshotKind = schema.GroupVersionKind{Group: "snapshot.storage.k8s.io", Version: "v1", Kind: "VolumeSnapshot"}

func (r *Reconciler) observeSnapshot(ctx context.Context, key client.ObjectKey, s *datavolume.Source) (*unstructured.Unstructured, error) {
	snapshot := &unstructured.Unstructured{}
	snapshot.SetGroupVersionKind(snapshotKind)
	err := r.Reader.Get(ctx, key, snapshot)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the VolumeSnapshot %s: %w", key, err)
	}
	s.SnapshotExists = true
	s.SnapshotReady, _, _ = unstructured.NestedBool(snapshot.Object, "status", "readyToUse")
	if size, found, _ := unstructured.NestedString(snapshot.Object, "status", "restoreSize"); found {
		if quantity, err := resource.ParseQuantity(size); err == nil {
			s.RestoreSize = quantity.Value()
		}
	}
	class, found, _ := unstructured.NestedString(snapshot.Object, "spec", "volumeSnapshotClassName")
	if !found {
		return snapshot, nil
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(snapshotKind.GroupVersion().WithKind("VolumeSnapshotClass"))
	err = r.Reader.Get(ctx, client.ObjectKey{Name: class}, object)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the VolumeSnapshotClass %s: %w", class, err)
	}
	s.SnapshotDriver, _, _ = unstructured.NestedString(object.Object, "driver")
	return snapshot, nil
}

// observeContent reads the mode of the volume of a snapshot. The content must refer to the snapshot, since users who
// may write the snapshot's status could name another content.
func (r *Reconciler) observeContent(ctx context.Context, snapshot *unstructured.Unstructured, s *datavolume.Source) error {
	name, found, _ := unstructured.NestedString(snapshot.Object, "status", "boundVolumeSnapshotContentName")
	if !found || name == "" {
		return nil
	}
	content := &unstructured.Unstructured{}
	content.SetGroupVersionKind(snapshotKind.GroupVersion().WithKind("VolumeSnapshotContent"))
	err := r.Reader.Get(ctx, client.ObjectKey{Name: name}, content)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the VolumeSnapshotContent %s: %w", name, err)
	}
	if of, _, _ := unstructured.NestedString(content.Object, "spec", "volumeSnapshotRef", "uid"); of != string(snapshot.GetUID()) {
		return nil
	}
	mode, _, _ := unstructured.NestedString(content.Object, "spec", "sourceVolumeMode")
	s.SnapshotMode = corev1.PersistentVolumeMode(mode)
	return nil
}
