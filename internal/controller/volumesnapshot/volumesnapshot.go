// Package volumesnapshot reads and creates the cluster's VolumeSnapshots (snapshot.storage.k8s.io) and
// VolumeGroupSnapshots (groupsnapshot.storage.k8s.io), for the loops that snapshot and restore VMs.
//
// It always asks the API server: without watches there is neither memory nor load at rest, and a cluster without the
// definitions needs no special case (decision 421). It must not decide anything.
package volumesnapshot

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/snapshot"
)

var version = schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}

const defaultClass = "snapshot.storage.kubernetes.io/is-default-class"

// maxError bounds, in bytes, a driver's error message.
const maxError = 1 << 10

// Classes lists the VolumeSnapshotClasses. served is false if the cluster does not serve VolumeSnapshots.
func Classes(ctx context.Context, reader client.Reader) (classes []snapshot.Class, served bool, err error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(version.WithKind("VolumeSnapshotClassList"))
	err = reader.List(ctx, list)
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("listing the VolumeSnapshotClasses: %w", err)
	}
	return classesIn(list, defaultClass), true, nil
}

func classesIn(list *unstructured.UnstructuredList, mark string) (classes []snapshot.Class) {
	for i := range list.Items {
		item := &list.Items[i]
		driver, _, _ := unstructured.NestedString(item.Object, "driver")
		classes = append(classes, snapshot.Class{Name: item.GetName(), Driver: driver, Default: item.GetAnnotations()[mark] == "true"})
	}
	return classes
}

// Of reads the VolumeSnapshots that a content names. Those that do not exist are absent from the result.
func Of(ctx context.Context, reader client.Reader, content *snapshotv1.VirtualMachineSnapshotContent) (map[string]snapshot.VolumeSnapshot, error) {
	found := map[string]snapshot.VolumeSnapshot{}
	for i := range content.Spec.VolumeBackups {
		name := content.Spec.VolumeBackups[i].VolumeSnapshotName
		if name == nil {
			continue
		}
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(version.WithKind("VolumeSnapshot"))
		err := reader.Get(ctx, client.ObjectKey{Namespace: content.Namespace, Name: *name}, object)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the VolumeSnapshot %s/%s: %w", content.Namespace, *name, err)
		}
		if object.GetDeletionTimestamp() == nil {
			found[*name] = facts(object)
		}
	}
	return found, nil
}

// Malformed fields count as absent.
func facts(object *unstructured.Unstructured) snapshot.VolumeSnapshot {
	v := snapshot.VolumeSnapshot{UID: string(object.GetUID())}
	if owner := metav1.GetControllerOf(object); owner != nil {
		v.Owner = string(owner.UID)
	}
	v.Token = object.GetAnnotations()[snapshot.TokenAnnotation]
	if text, ok, _ := unstructured.NestedString(object.Object, "status", "creationTime"); ok {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			v.Taken = &metav1.Time{Time: at}
		}
	}
	v.Ready, _, _ = unstructured.NestedBool(object.Object, "status", "readyToUse")
	v.Error = errorOf(object)
	if text, ok, _ := unstructured.NestedString(object.Object, "status", "restoreSize"); ok {
		if size, err := resource.ParseQuantity(text); err == nil {
			v.Size = &size
		}
	}
	return v
}

func errorOf(object *unstructured.Unstructured) string {
	message, _, _ := unstructured.NestedString(object.Object, "status", "error", "message")
	return strings.ToValidUTF8(message[:min(len(message), maxError)], "")
}

// Create creates a VolumeSnapshot. It is no error if one of its name exists.
func Create(ctx context.Context, c client.Client, namespace string, wanted snapshot.NewVolumeSnapshot) error {
	object := made(version.WithKind("VolumeSnapshot"), namespace, wanted.Name, wanted.Owner, wanted.Token, map[string]any{
		"volumeSnapshotClassName": wanted.Class,
		"source":                  map[string]any{"persistentVolumeClaimName": wanted.Claim},
	})
	object.SetLabels(wanted.Labels)
	if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making the VolumeSnapshot %s/%s of the claim %s: %w", namespace, wanted.Name, wanted.Claim, err)
	}
	return nil
}

// made returns an object that belongs to a content. It has the token of the guest's hold, if it is created under one.
func made(kind schema.GroupVersionKind, namespace, name string, owner metav1.OwnerReference, token string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	object.SetOwnerReferences([]metav1.OwnerReference{owner})
	if token != "" {
		object.SetAnnotations(map[string]string{snapshot.TokenAnnotation: token})
	}
	return object
}
