package volumesnapshot

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/snapshot"
)

const (
	groupAPI          = "groupsnapshot.storage.k8s.io"
	defaultGroupClass = "groupsnapshot.storage.kubernetes.io/is-default-class"
	// maxMembers bounds how many VolumeSnapshots are examined as members of a group; any user can make some.
	maxMembers = 256
)

// groupKind returns a kind in the version of the API that the cluster prefers, and whether it is served.
func groupKind(c client.Client, kind string) (schema.GroupVersionKind, bool, error) {
	mapping, err := c.RESTMapper().RESTMapping(schema.GroupKind{Group: groupAPI, Kind: kind})
	switch {
	case meta.IsNoMatchError(err):
		return schema.GroupVersionKind{}, false, nil
	case err != nil:
		return schema.GroupVersionKind{}, false, fmt.Errorf("asking which version of %s the cluster serves: %w", groupAPI, err)
	}
	return mapping.GroupVersionKind, true, nil
}

// GroupClasses lists the VolumeGroupSnapshotClasses, none if the cluster does not serve VolumeGroupSnapshots.
func GroupClasses(ctx context.Context, c client.Client, reader client.Reader) ([]snapshot.Class, error) {
	kind, served, err := groupKind(c, "VolumeGroupSnapshotClass")
	if err != nil || !served {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err = reader.List(ctx, list)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the VolumeGroupSnapshotClasses: %w", err)
	}
	return classesIn(list, defaultGroupClass), nil
}

// read returns an object of the group API, nil if it does not exist.
func read(ctx context.Context, c client.Client, reader client.Reader, kind string, key client.ObjectKey) (*unstructured.Unstructured, error) {
	version, served, err := groupKind(c, kind)
	if err != nil || !served {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(version)
	err = reader.Get(ctx, key, object)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the %s %s: %w", kind, key, err)
	}
	return object, nil
}

// Group reads a VolumeGroupSnapshot, nil for none. Its VolumeSnapshots are looked up if members returns true.
func Group(ctx context.Context, c client.Client, reader client.Reader, key client.ObjectKey, members func(*snapshot.Group) bool) (*snapshot.Group, error) {
	object, err := read(ctx, c, reader, "VolumeGroupSnapshot", key)
	if err != nil || object == nil {
		return nil, err
	}
	var content *unstructured.Unstructured
	if name, _, _ := unstructured.NestedString(object.Object, "status", "boundVolumeGroupSnapshotContentName"); name != "" {
		if content, err = read(ctx, c, reader, "VolumeGroupSnapshotContent", client.ObjectKey{Name: name}); err != nil {
			return nil, err
		}
	}
	group, snapshots := groupFacts(object, content)
	if !members(group) {
		return group, nil
	}
	return group, findMembers(ctx, reader, object, group, snapshots)
}

// groupFacts extracts the facts from a VolumeGroupSnapshot and its content, and the driver's handles of the snapshots
// in Cuts. Users may write a VolumeGroupSnapshot's status, so its content counts only if it refers back.
func groupFacts(object, content *unstructured.Unstructured) (group *snapshot.Group, snapshots []string) {
	group = &snapshot.Group{Ends: object.GetDeletionTimestamp() != nil, Token: object.GetAnnotations()[snapshot.TokenAnnotation], Error: errorOf(object)}
	if owner := metav1.GetControllerOf(object); owner != nil {
		group.Owner = string(owner.UID)
	}
	if content == nil {
		return group, nil
	}
	if of, _, _ := unstructured.NestedString(content.Object, "spec", "volumeGroupSnapshotRef", "uid"); of == "" || of != string(object.GetUID()) {
		return group, nil
	}
	group.Driver, _, _ = unstructured.NestedString(content.Object, "spec", "driver")
	if group.Error == "" {
		group.Error = errorOf(content)
	}
	text, _, _ := unstructured.NestedString(content.Object, "status", "creationTime")
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return group, nil
	}
	// The first field is v1beta1's, the second its successors'.
	for _, field := range []string{"volumeSnapshotHandlePairList", "volumeSnapshotInfoList"} {
		pairs, _, _ := unstructured.NestedSlice(content.Object, "status", field)
		for _, pair := range pairs {
			fields, _ := pair.(map[string]any)
			volume, _ := fields["volumeHandle"].(string)
			of, _ := fields["snapshotHandle"].(string)
			group.Cuts, snapshots = append(group.Cuts, snapshot.GroupCut{Handle: volume}), append(snapshots, of)
		}
	}
	if len(group.Cuts) > 0 {
		group.Taken = &metav1.Time{Time: at}
	}
	return group, snapshots
}

// findMembers finds the VolumeSnapshots of a group's cuts, whose names snapshot-controller chooses. Each must refer
// to the group and be bound to the content of one of its snapshots, which no user can write.
func findMembers(ctx context.Context, reader client.Reader, object *unstructured.Unstructured, group *snapshot.Group, snapshots []string) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(version.WithKind("VolumeSnapshotList"))
	members, err := pagedlist.Collect(ctx, reader, list, func(m *metav1.PartialObjectMetadata) (metav1.ObjectMeta, bool) {
		return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID}, m.DeletionTimestamp == nil &&
			slices.ContainsFunc(m.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == object.GetUID() })
	}, client.InNamespace(object.GetNamespace()))
	if err != nil {
		return fmt.Errorf("looking for the VolumeSnapshots of the VolumeGroupSnapshot %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	slices.SortFunc(members, func(a, b metav1.ObjectMeta) int { return cmp.Compare(a.Name, b.Name) })
	for i := range members[:min(len(members), maxMembers)] {
		of, err := snapshotOf(ctx, reader, &members[i], group.Driver)
		if err != nil {
			return err
		}
		if at := slices.Index(snapshots, of); at >= 0 && of != "" {
			group.Cuts[at].Name, group.Cuts[at].UID = members[i].Name, string(members[i].UID)
		}
	}
	return nil
}

// snapshotOf returns the driver's handle of the snapshot to which a VolumeSnapshot is bound, "" for none.
func snapshotOf(ctx context.Context, reader client.Reader, member *metav1.ObjectMeta, driver string) (string, error) {
	object, content := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	object.SetGroupVersionKind(version.WithKind("VolumeSnapshot"))
	content.SetGroupVersionKind(version.WithKind("VolumeSnapshotContent"))
	err := reader.Get(ctx, client.ObjectKey{Namespace: member.Namespace, Name: member.Name}, object)
	if err == nil {
		name, _, _ := unstructured.NestedString(object.Object, "status", "boundVolumeSnapshotContentName")
		if name == "" {
			return "", nil
		}
		err = reader.Get(ctx, client.ObjectKey{Name: name}, content)
	}
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the VolumeSnapshot %s/%s and what it is bound to: %w", member.Namespace, member.Name, err)
	}
	return boundSnapshot(object, content, driver), nil
}

// boundSnapshot returns the driver's handle in a content, "" if the content is another VolumeSnapshot's or driver's.
func boundSnapshot(object, content *unstructured.Unstructured, driver string) string {
	of, _, _ := unstructured.NestedString(content.Object, "spec", "volumeSnapshotRef", "uid")
	by, _, _ := unstructured.NestedString(content.Object, "spec", "driver")
	if of == "" || of != string(object.GetUID()) || by != driver {
		return ""
	}
	handle, _, _ := unstructured.NestedString(content.Object, "status", "snapshotHandle")
	return handle
}

// CreateGroup creates a VolumeGroupSnapshot. It is no error if one of its name exists.
func CreateGroup(ctx context.Context, c client.Client, namespace string, wanted *snapshot.NewGroup) error {
	kind, served, err := groupKind(c, "VolumeGroupSnapshot")
	if err != nil {
		return err
	}
	if !served {
		return fmt.Errorf("making the VolumeGroupSnapshot %s/%s: the cluster does not serve %s any more", namespace, wanted.Name, groupAPI)
	}
	object := made(kind, namespace, wanted.Name, wanted.Owner, wanted.Token, map[string]any{
		"volumeGroupSnapshotClassName": wanted.Class,
		"source":                       map[string]any{"selector": map[string]any{"matchLabels": map[string]any{wanted.Label: labeled}}},
	})
	object.SetLabels(wanted.Labels)
	if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making the VolumeGroupSnapshot %s/%s: %w", namespace, wanted.Name, err)
	}
	return nil
}
