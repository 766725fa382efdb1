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

	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

func (r *round) observe(ctx context.Context) (datavolume.Observed, error) {
	o := datavolume.Observed{DataVolume: r.dv, Confirmed: r.current, Now: r.Now()}
	for _, part := range []func(context.Context, *datavolume.Observed) error{r.observeClaim, r.resolveSource, r.observePods, r.observeRestored, r.observeClass, r.observeSource} {
		if err := part(ctx, &o); err != nil {
			return o, err
		}
	}
	var err error
	o.Config, err = r.config(ctx)
	return o, err
}

func (r *Reconciler) config(ctx context.Context) (datavolume.Config, error) {
	config, err := versioned.Read[cdiv1.CDIConfig](ctx, r.Client, "the CDIConfig", client.ObjectKey{Name: datavolume.ConfigName})
	if err != nil {
		return datavolume.Config{}, err
	}
	out := datavolume.ConfigOf(config)
	out.DeniedNetworks, out.AllowedNetworks = r.DeniedNetworks, r.AllowedNetworks
	return out, nil
}

// A claim of this round is newer than the cache.
func (r *round) observeClaim(ctx context.Context, o *datavolume.Observed) error {
	o.Claim = r.claim
	if o.Claim != nil {
		return nil
	}
	// The cache may lack an earlier round's claim.
	claim, err := versioned.Read[corev1.PersistentVolumeClaim](ctx, versioned.CacheFirst(r.Client, r.Reader), "the claim", client.ObjectKeyFromObject(r.dv))
	o.Claim, r.claim = claim, claim
	return err
}

// resolveSource resolves the DataVolume's sourceRef to the source for which its claim was created, or else to the
// DataSource's present one.
func (r *round) resolveSource(ctx context.Context, o *datavolume.Observed) error {
	namespace, name, refers := datavolume.Refers(r.dv)
	if !refers || datavolume.Ended(r.dv) {
		return nil
	}
	source := datavolume.Chosen(r.dv, o.Claim)
	if source == nil {
		found, err := versioned.Read[cdiv1.DataSource](ctx, r.Client, "the DataSource", client.ObjectKey{Namespace: namespace, Name: name})
		if err != nil {
			return err
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
		if pod != nil && !metav1.IsControlledBy(pod, r.dv) {
			o.Conflicting = true
			pod = nil
		}
		o.Worker = pod
	}
	namespace, kind, _ := datavolume.SourceOf(&r.dv.Spec, r.dv.Namespace)
	if o.SourcePod = r.source; o.SourcePod == nil && kind != "" {
		key := client.ObjectKey{Namespace: namespace, Name: datavolume.SourcePodName(r.dv)}
		pod, err := versioned.Read[corev1.Pod](ctx, r.reader(), "the source pod", key)
		if err != nil {
			return err
		}
		if pod != nil && datavolume.IsWorkerOf(r.dv, pod) {
			o.SourcePod = pod
		}
	}
	return nil
}

func (r *round) observeRestored(ctx context.Context, o *datavolume.Observed) (err error) {
	o.Restored, err = r.restoredClaim(ctx, datavolume.RestoredKey(r.dv))
	return err
}

func (r *round) restoredClaim(ctx context.Context, key client.ObjectKey) (*corev1.PersistentVolumeClaim, error) {
	if r.restored != nil || key.Name == "" {
		return r.restored, nil
	}
	return versioned.Read[corev1.PersistentVolumeClaim](ctx, r.reader(), "the claim from which a snapshot is copied,", key)
}

// reader reads objects in the source's namespace. Before the DataVolume's finalizer is removed, the cache is not
// enough.
func (r *round) reader() client.Reader {
	ends := datavolume.Ended(r.dv) || r.dv.DeletionTimestamp != nil
	if ends && slices.Contains(r.dv.Finalizers, datavolume.Finalizer) {
		return versioned.CacheFirst(r.Client, r.Reader)
	}
	return r.Client
}

// pod reads a pod from the cache. A new pod can't be created twice, since its name is fixed.
func (r *Reconciler) pod(ctx context.Context, key client.ObjectKey) (*corev1.Pod, error) {
	return versioned.Read[corev1.Pod](ctx, r.Client, "the worker pod", key)
}

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
	var err error
	o.Profile, err = versioned.Read[cdiv1.StorageProfile](ctx, r.Client, "the StorageProfile", client.ObjectKey{Name: o.Class.Name})
	return err
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
	claim, err := versioned.Read[corev1.PersistentVolumeClaim](ctx, r.Client, "the source claim", key)
	if err != nil || claim == nil {
		return err
	}
	s.Claim = claim
	if claim.Spec.VolumeName != "" {
		if s.Volume, err = versioned.Read[corev1.PersistentVolume](ctx, r.Reader, "the volume of the source claim,", client.ObjectKey{Name: claim.Spec.VolumeName}); err != nil {
			return err
		}
	}
	if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == "DataVolume" {
		filler, err := versioned.Read[cdiv1.DataVolume](ctx, r.Client, "the DataVolume of the source claim,", client.ObjectKey{Namespace: key.Namespace, Name: owner.Name})
		if err != nil {
			return err
		}
		if filler != nil && filler.UID == owner.UID && filler.Status.Phase != cdiv1.Succeeded {
			s.Unfilled = owner.Name
		}
	}
	return nil
}

// writer names a pod that may write to a claim, "" for none. Pods of all kinds are listed and not cached.
func (r *round) writer(ctx context.Context, claim client.ObjectKey) (string, error) {
	writers, err := pagedlist.Collect(ctx, r.Reader, &corev1.PodList{}, func(pod *corev1.Pod) (string, bool) {
		return pod.Name, datavolume.Writes(pod, claim.Name)
	}, client.InNamespace(claim.Namespace))
	switch {
	case err != nil:
		return "", fmt.Errorf("listing the pods that use the claim %s: %w", claim, err)
	case len(writers) == 0:
		return "", nil
	}
	return writers[0], nil
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
	if _, err := versioned.Find(ctx, r.Reader, "the VolumeSnapshotClass", client.ObjectKey{Name: class}, object); err != nil {
		return nil, err
	}
	s.SnapshotDriver, _, _ = unstructured.NestedString(object.Object, "driver")
	return snapshot, nil
}

// observeContent reads the mode of a snapshot's volume. The content must refer to the snapshot, in whose status users may
// name another content.
func (r *Reconciler) observeContent(ctx context.Context, snapshot *unstructured.Unstructured, s *datavolume.Source) error {
	name, found, _ := unstructured.NestedString(snapshot.Object, "status", "boundVolumeSnapshotContentName")
	if !found || name == "" {
		return nil
	}
	content := &unstructured.Unstructured{}
	content.SetGroupVersionKind(snapshotKind.GroupVersion().WithKind("VolumeSnapshotContent"))
	if _, err := versioned.Find(ctx, r.Reader, "the VolumeSnapshotContent", client.ObjectKey{Name: name}, content); err != nil {
		return err
	}
	if of, _, _ := unstructured.NestedString(content.Object, "spec", "volumeSnapshotRef", "uid"); of != string(snapshot.GetUID()) {
		return nil
	}
	mode, _, _ := unstructured.NestedString(content.Object, "spec", "sourceVolumeMode")
	s.SnapshotMode = corev1.PersistentVolumeMode(mode)
	return nil
}
