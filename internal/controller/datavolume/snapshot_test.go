package datavolume

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// If a snapshot's status names another's content, that mode must not count.
func TestTheModeOfASnapshotIsItsContents(t *testing.T) {
	for name, test := range map[string]struct {
		status map[string]any
		of     string
		want   corev1.PersistentVolumeMode
	}{
		"its content":                {map[string]any{"readyToUse": true, "boundVolumeSnapshotContentName": "content"}, "1-2", corev1.PersistentVolumeBlock},
		"the content of another one": {map[string]any{"readyToUse": true, "boundVolumeSnapshotContentName": "content"}, "3-4", ""},
		"a content that is gone":     {map[string]any{"readyToUse": true, "boundVolumeSnapshotContentName": "other"}, "1-2", ""},
		"none yet":                   {map[string]any{}, "1-2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := &unstructured.Unstructured{Object: map[string]any{"status": test.status}}
			snapshot.SetGroupVersionKind(snapshotKind)
			snapshot.SetNamespace("golden")
			snapshot.SetName("snap")
			snapshot.SetUID("1-2")
			content := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
				"sourceVolumeMode": "Block", "volumeSnapshotRef": map[string]any{"uid": test.of},
			}}}
			content.SetGroupVersionKind(snapshotKind.GroupVersion().WithKind("VolumeSnapshotContent"))
			content.SetName("content")
			loop, _ := lagging(t, snapshot, content)
			dv := &cdiv1.DataVolume{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk"},
				Spec:       cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: "golden", Name: "snap"}}},
			}
			o := datavolume.Observed{DataVolume: dv}
			r := round{Reconciler: loop, dv: dv}
			if err := r.observeSource(t.Context(), &o); err != nil {
				t.Fatal(err)
			}
			if !o.Source.SnapshotExists || o.Source.SnapshotMode != test.want {
				t.Errorf("the source is known as %+v, want the mode %q", o.Source, test.want)
			}
		})
	}
}

// The restored claim is missing in the cache: the DataVolume must still not lose its finalizer.
func TestWhatWasRestoredElsewhereIsDeletedThoughTheCacheLags(t *testing.T) {
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: "1234-5", Finalizers: []string{datavolume.Finalizer}},
		Spec:       cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: "golden", Name: "snap"}}},
		Status:     cdiv1.DataVolumeStatus{Phase: cdiv1.Failed},
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "golden", Name: datavolume.RestoredName(dv), UID: "6-7", Annotations: map[string]string{datavolume.AnnTarget: "ns/disk"},
	}}
	loop, _ := lagging(t, dv)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "golden", Name: datavolume.SourcePodName(dv), Labels: map[string]string{v1.AppLabel: datavolume.WorkerAppLabel},
	}}
	api, _ := lagging(t, dv, claim)
	loop.Reader = api.Client
	var deleted []string
	loop.Client = interceptor.NewClient(loop.Client.(client.WithWatch), interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if _, is := object.(*corev1.PersistentVolumeClaim); is {
				o := (&client.DeleteOptions{}).ApplyOptions(options)
				deleted = append(deleted, object.GetNamespace()+"/"+object.GetName()+" "+string(*o.Preconditions.UID))
			}
			return nil
		},
	})
	wake(t, loop, dv, 2)
	if len(deleted) != 1 || deleted[0] != "golden/1234-5-snapshot 6-7" {
		t.Errorf("deleted are %q, want the claim once", deleted)
	}
	var left cdiv1.DataVolume
	if err := loop.Client.Get(t.Context(), client.ObjectKeyFromObject(dv), &left); err != nil || len(left.Finalizers) != 1 {
		t.Errorf("while the claim is there the DataVolume has the finalizers %q (%v)", left.Finalizers, err)
	}
	api, _ = lagging(t, dv, pod)
	loop.Reader = api.Client
	wake(t, loop, dv, 1)
	if err := loop.Client.Get(t.Context(), client.ObjectKeyFromObject(dv), &left); err != nil || len(left.Finalizers) != 1 {
		t.Errorf("while its pod is there the DataVolume has the finalizers %q (%v)", left.Finalizers, err)
	}
}
