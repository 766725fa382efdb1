//go:build apiserver

package controller

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// The VolumeSnapshot is ready; its driver does not exist.
func (w *world) blockSnapshot(namespace, name string) {
	w.t.Helper()
	const api = "snapshot.storage.k8s.io/v1"
	content := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": api, "kind": "VolumeSnapshotContent", "metadata": map[string]any{"name": namespace},
		"spec": map[string]any{
			"deletionPolicy": "Retain", "driver": nobodysDriver, "sourceVolumeMode": "Block", "source": map[string]any{"snapshotHandle": namespace},
			"volumeSnapshotRef": map[string]any{"namespace": namespace, "name": name},
		},
	}}
	snapshot := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": api, "kind": "VolumeSnapshot", "metadata": map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{"source": map[string]any{"volumeSnapshotContentName": namespace}},
	}}
	w.do("making the snapshot", w.client.Create(w.ctx, snapshot))
	_ = unstructured.SetNestedField(content.Object, string(snapshot.GetUID()), "spec", "volumeSnapshotRef", "uid")
	w.do("making its content", w.client.Create(w.ctx, content))
	w.t.Cleanup(func() {
		for _, object := range []client.Object{snapshot, content} {
			_ = w.client.Delete(w.cleanup(), object)
			_ = w.client.Patch(w.cleanup(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		}
	})
	w.eventually("the snapshot to be ready", func() (bool, string) {
		status := []byte(`{"status":{"readyToUse":true,"snapshotHandle":"` + namespace + `","restoreSize":1073741824}}`)
		_ = w.client.Status().Patch(w.ctx, content, client.RawPatch(types.MergePatchType, status))
		status = []byte(`{"status":{"readyToUse":true,"boundVolumeSnapshotContentName":"` + namespace + `","restoreSize":"1Gi"}}`)
		err := w.client.Status().Patch(w.ctx, snapshot, client.RawPatch(types.MergePatchType, status))
		ready, _, _ := unstructured.NestedBool(snapshot.Object, "status", "readyToUse")
		return ready, fmt.Sprint(err, snapshot.Object["status"])
	})
}

// Another namespace's snapshot of a block volume fills a file system here. The temporary claim there must be
// deleted.
func TestASnapshotElsewhereIsCopiedAndLeavesNothingBehind(t *testing.T) {
	w := newWorld(t)
	w.uploadAuthority()
	class := w.storageClass(storagev1.VolumeBindingImmediate)
	other := w.anotherNamespace()
	w.blockSnapshot(other, "snap")

	source := cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: other, Name: "snap"}}
	w.createDV("copy", class, source, func(dv *cdiv1.DataVolume) {
		dv.Annotations = map[string]string{datavolume.AnnCloneAllowed: "snapshot/" + other + "/snap"}
	})
	w.bindClaim("copy")
	dv := w.dv("copy")
	restored := &corev1.PersistentVolumeClaim{}
	key := datavolume.RestoredKey(dv)
	w.eventually("the snapshot to be restored beside it", func() (bool, string) {
		err := w.client.Get(w.ctx, key, restored)
		return err == nil, fmt.Sprint(err)
	})
	if s := restored.Spec; s.DataSource == nil || s.DataSource.Name != "snap" || *s.VolumeMode != corev1.PersistentVolumeBlock {
		t.Errorf("the claim is %+v", s)
	}
	w.bindIn(key.Namespace, key.Name)
	w.awaitWorker("cdi-upload-copy")
	var sender corev1.Pod
	pod := client.ObjectKey{Namespace: other, Name: datavolume.SourcePodName(dv)}
	w.eventually("the source pod", func() (bool, string) {
		err := w.client.Get(w.ctx, pod, &sender)
		return err == nil, fmt.Sprint(err)
	})
	if claim := sender.Spec.Volumes[1].PersistentVolumeClaim; claim == nil || claim.ClaimName != key.Name {
		t.Errorf("the source pod has the volumes %+v", sender.Spec.Volumes)
	}
	w.do("deleting the DataVolume", w.client.Delete(w.ctx, dv))
	w.eventually("the source pod, the claim that it read and the DataVolume to go", func() (bool, string) {
		_ = w.client.Delete(w.ctx, &sender, client.GracePeriodSeconds(0))
		claimErr := w.client.Get(w.ctx, key, restored)
		if claimErr == nil && restored.DeletionTimestamp != nil {
			// Nobody in this cluster removes the finalizer of an unused claim.
			_ = w.client.Patch(w.ctx, restored, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		}
		podErr := w.client.Get(w.ctx, pod, &sender)
		dvErr := w.client.Get(w.ctx, client.ObjectKeyFromObject(dv), dv)
		return apierrors.IsNotFound(podErr) && apierrors.IsNotFound(claimErr) && apierrors.IsNotFound(dvErr),
			fmt.Sprint(podErr, claimErr, dvErr, dv.Finalizers)
	})
}
