//go:build apiserver

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	groupSnapshots = "groupsnapshot.storage.k8s.io/v1beta1"
	snapshots      = "snapshot.storage.k8s.io/v1"
)

// groupDriver plays a CSI driver that snapshots several volumes at once, its sidecars and the
// snapshot-controller's part for groups; and the garbage collector, which discovers new kinds only within half a
// minute. It has no data. The embedded cluster's snapshot-controller binds its VolumeSnapshots.
type groupDriver struct {
	w    *world
	name string

	mu sync.Mutex
	// meddle is called before the driver lists the labeled claims.
	meddle func()
	// refusal is the driver's error, or "".
	refusal string
	err     error
}

// newGroupDriver defines the API of VolumeGroupSnapshots, and runs the driver until the test ends.
func (w *world) newGroupDriver() *groupDriver {
	w.t.Helper()
	d := &groupDriver{w: w, name: "group." + w.namespace}
	for _, kind := range []string{"VolumeGroupSnapshot", "VolumeGroupSnapshotContent", "VolumeGroupSnapshotClass"} {
		d.define(kind)
	}
	d.class(snapshots, "VolumeSnapshotClass")
	d.class(groupSnapshots, "VolumeGroupSnapshotClass")
	ctx, cancel := context.WithCancel(w.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := d.work(ctx); err != nil && ctx.Err() == nil {
				d.set(func(d *groupDriver) { d.err = err })
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	w.t.Cleanup(func() {
		cancel()
		<-ended
		if d.err != nil {
			w.t.Errorf("the driver that stands in: %v", d.err)
		}
		d.sweep()
	})
	return d
}

func (d *groupDriver) set(change func(*groupDriver)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// The definition lacks external-snapshotter's schema.
func (d *groupDriver) define(kind string) {
	d.w.t.Helper()
	scope, plural, group := apiextensionsv1.ClusterScoped, map[string]string{
		"VolumeGroupSnapshot": "volumegroupsnapshots", "VolumeGroupSnapshotContent": "volumegroupsnapshotcontents", "VolumeGroupSnapshotClass": "volumegroupsnapshotclasses",
	}[kind], "groupsnapshot.storage.k8s.io"
	if kind == "VolumeGroupSnapshot" {
		scope = apiextensionsv1.NamespaceScoped
	}
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group, Annotations: map[string]string{
			apiextensionsv1.KubeAPIApprovedAnnotation: "https://github.com/kubernetes-csi/external-snapshotter/pull/1150",
		}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: plural},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1beta1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true)}},
			}},
		},
	}
	// An earlier test's definition may still be deleting.
	d.w.eventually(kind+" to be defined", func() (bool, string) {
		err := d.w.client.Create(d.w.ctx, definition)
		return err == nil, fmt.Sprint(err)
	})
	d.w.t.Cleanup(func() { _ = d.w.client.Delete(d.w.cleanup(), definition) })
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(groupSnapshots)
	list.SetKind(kind + "List")
	d.w.eventually(kind+" to be served", func() (bool, string) {
		err := d.w.client.List(d.w.ctx, list)
		return err == nil, fmt.Sprint(err)
	})
}

func (d *groupDriver) class(api, kind string) {
	d.w.t.Helper()
	class := made(api, kind, "", d.w.namespace, map[string]any{"driver": d.name, "deletionPolicy": "Delete"})
	d.w.do("making the "+kind, d.w.client.Create(d.w.ctx, class))
	d.w.t.Cleanup(func() { _ = d.w.client.Delete(d.w.cleanup(), class) })
}

func made(api, kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: fields}
	object.SetAPIVersion(api)
	object.SetKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

func (d *groupDriver) volume(claim string) *corev1.PersistentVolume {
	d.w.t.Helper()
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: d.w.namespace + "-" + claim},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Mi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: d.name, VolumeMode: new(corev1.PersistentVolumeBlock),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: d.name, VolumeHandle: "handle-of-" + claim}},
			ClaimRef:               &corev1.ObjectReference{Namespace: d.w.namespace, Name: claim},
		},
	}
	d.w.do("making a volume", d.w.client.Create(d.w.ctx, volume))
	d.w.t.Cleanup(func() { _ = d.w.client.Delete(d.w.cleanup(), volume) })
	return volume
}

func (d *groupDriver) claim(name string, labels map[string]string) {
	d.w.t.Helper()
	volume := d.volume(name)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: d.w.namespace, Labels: labels},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &d.name, VolumeName: volume.Name, VolumeMode: volume.Spec.VolumeMode, AccessModes: volume.Spec.AccessModes,
			Resources: corev1.VolumeResourceRequirements{Requests: volume.Spec.Capacity},
		},
	}
	d.w.do("making the claim", d.w.client.Create(d.w.ctx, claim))
	d.w.eventually("the claim to be bound", func() (bool, string) {
		d.w.do("reading the claim", d.w.client.Get(d.w.ctx, client.ObjectKeyFromObject(claim), claim))
		return claim.Status.Phase == corev1.ClaimBound, string(claim.Status.Phase)
	})
}

// groups lists the VolumeGroupSnapshots of the namespace.
func (d *groupDriver) groups(ctx context.Context) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(groupSnapshots)
	list.SetKind("VolumeGroupSnapshotList")
	err := d.w.client.List(ctx, list, client.InNamespace(d.w.namespace))
	return list.Items, err
}

// Objects without an owner are deleted.
func (d *groupDriver) work(ctx context.Context) error {
	groups, err := d.groups(ctx)
	if err != nil {
		return fmt.Errorf("listing groups: %w", err)
	}
	for i := range groups {
		_, done, _ := unstructured.NestedMap(groups[i].Object, "status")
		if done || groups[i].GetDeletionTimestamp() != nil {
			continue
		}
		if err := d.take(ctx, &groups[i]); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("taking the group %s: %w", groups[i].GetName(), err)
		}
	}
	return d.collect(ctx, groups)
}

// A group goes with its contents, and a VolumeSnapshot with its group.
func (d *groupDriver) collect(ctx context.Context, groups []unstructured.Unstructured) error {
	here := map[types.UID]bool{}
	for i := range groups {
		owner, content := metav1.GetControllerOf(&groups[i]), &snapshotv1.VirtualMachineSnapshotContent{}
		here[groups[i].GetUID()] = true
		err := d.w.client.Get(ctx, client.ObjectKey{Namespace: d.w.namespace, Name: owner.Name}, content)
		if apierrors.IsNotFound(err) {
			err = client.IgnoreNotFound(d.w.client.Delete(ctx, &groups[i]))
		}
		if err != nil {
			return fmt.Errorf("collecting the group %s: %w", groups[i].GetName(), err)
		}
	}
	members := &unstructured.UnstructuredList{}
	members.SetAPIVersion(snapshots)
	members.SetKind("VolumeSnapshotList")
	if err := d.w.client.List(ctx, members, client.InNamespace(d.w.namespace)); err != nil {
		return fmt.Errorf("listing VolumeSnapshots: %w", err)
	}
	for i := range members.Items {
		owners := members.Items[i].GetOwnerReferences()
		if len(owners) != 1 || here[owners[0].UID] || members.Items[i].GetDeletionTimestamp() != nil {
			continue
		}
		if err := client.IgnoreNotFound(d.w.client.Delete(ctx, &members.Items[i])); err != nil {
			return fmt.Errorf("collecting the VolumeSnapshot %s: %w", members.Items[i].GetName(), err)
		}
	}
	return nil
}

func (d *groupDriver) take(ctx context.Context, group *unstructured.Unstructured) error {
	d.mu.Lock()
	meddle, refusal := d.meddle, d.refusal
	d.mu.Unlock()
	if meddle != nil {
		meddle()
	}
	if refusal != "" {
		return d.status(ctx, group, map[string]any{"readyToUse": false, "error": map[string]any{"message": refusal}})
	}
	selector, _, _ := unstructured.NestedStringMap(group.Object, "spec", "source", "selector", "matchLabels")
	var claims corev1.PersistentVolumeClaimList
	if err := d.w.client.List(ctx, &claims, client.InNamespace(d.w.namespace), client.MatchingLabels(selector)); err != nil {
		return err
	}
	var pairs []any
	for i := range claims.Items {
		handle := "handle-of-" + claims.Items[i].Name
		pairs = append(pairs, map[string]any{"volumeHandle": handle, "snapshotHandle": string(group.GetUID()) + "-of-" + handle})
	}
	content := made(groupSnapshots, "VolumeGroupSnapshotContent", "", "groupsnapcontent-"+string(group.GetUID()), map[string]any{"spec": map[string]any{
		"driver": d.name, "deletionPolicy": "Delete",
		"volumeGroupSnapshotRef": map[string]any{"kind": group.GetKind(), "namespace": group.GetNamespace(), "name": group.GetName(), "uid": string(group.GetUID())},
	}})
	if err := d.w.client.Create(ctx, content); err != nil {
		return err
	}
	now := time.Now().UTC().Format(time.RFC3339)
	if err := d.status(ctx, group, map[string]any{"boundVolumeGroupSnapshotContentName": content.GetName()}); err != nil {
		return err
	}
	if err := d.status(ctx, content, map[string]any{"creationTime": now, "readyToUse": true, "volumeSnapshotHandlePairList": pairs}); err != nil {
		return err
	}
	for i, pair := range pairs {
		if err := d.member(ctx, group, fmt.Sprintf("member-%d-%s", i, group.GetUID()), pair.(map[string]any)["snapshotHandle"].(string)); err != nil {
			return err
		}
	}
	return d.status(ctx, group, map[string]any{"boundVolumeGroupSnapshotContentName": content.GetName(), "creationTime": now, "readyToUse": true})
}

// member makes a VolumeSnapshot of a group.
func (d *groupDriver) member(ctx context.Context, group *unstructured.Unstructured, name, handle string) error {
	content := made(snapshots, "VolumeSnapshotContent", "", name, map[string]any{"spec": map[string]any{
		"driver": d.name, "deletionPolicy": "Retain", "source": map[string]any{"snapshotHandle": handle},
		"volumeSnapshotRef": map[string]any{"kind": "VolumeSnapshot", "namespace": d.w.namespace, "name": name},
	}})
	if err := d.w.client.Create(ctx, content); err != nil {
		return err
	}
	err := d.status(ctx, content, map[string]any{"snapshotHandle": handle, "readyToUse": true, "creationTime": time.Now().UnixNano(), "restoreSize": int64(4 << 20)})
	if err != nil {
		return err
	}
	member := made(snapshots, "VolumeSnapshot", d.w.namespace, name, map[string]any{"spec": map[string]any{"source": map[string]any{"volumeSnapshotContentName": name}}})
	member.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: groupSnapshots, Kind: group.GetKind(), Name: group.GetName(), UID: group.GetUID()}})
	return d.w.client.Create(ctx, member)
}

// Other controllers write the object, too.
func (d *groupDriver) status(ctx context.Context, object *unstructured.Unstructured, status map[string]any) error {
	from := object.DeepCopy()
	unstructured.RemoveNestedField(from.Object, "status")
	to := from.DeepCopy()
	to.Object["status"] = status
	return d.w.client.Status().Patch(ctx, to, client.MergeFrom(from))
}

// Nobody else removes the finalizers.
func (d *groupDriver) sweep() {
	for api, kind := range map[string]string{snapshots: "VolumeSnapshotContentList", groupSnapshots: "VolumeGroupSnapshotContentList"} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(api)
		list.SetKind(kind)
		if err := d.w.client.List(d.w.cleanup(), list); err != nil {
			d.w.t.Errorf("sweeping: %v", err)
		}
		for i := range list.Items {
			if by, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "driver"); by == d.name {
				_ = d.w.client.Delete(d.w.cleanup(), &list.Items[i])
				_ = d.w.client.Patch(d.w.cleanup(), &list.Items[i], client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
			}
		}
	}
}
