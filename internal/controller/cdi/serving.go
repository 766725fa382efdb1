package cdi

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// These names identify an installation of CDI.
const (
	DeploymentName = "cdi-deployment"
	definitionName = "cdis.cdi.kubevirt.io"
)

var definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// Definition is the kind of definitions in the cache: only metadata.
func Definition() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(definitionKind)
	return object
}

// ownerKind is the kind of the object that controls everything that CDI's operator deploys.
const ownerKind = "CDI"

// Installed returns CDI's Deployment as "namespace/name", "" if Drydock serves DataVolumes. A user can create a Deployment
// with any name and owner references, so it counts only if a CDI object controls it that CDI's operator operates: only an
// administrator can create that object and write its status. cached has Deployments and definitions; direct asks the API
// server.
func Installed(ctx context.Context, cached, direct client.Reader) (string, error) {
	err := cached.Get(ctx, client.ObjectKey{Name: definitionName}, Definition())
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("looking for CDI's definition %s: %w", definitionName, err)
	}
	if err != nil {
		return "", nil
	}
	var list appsv1.DeploymentList
	if err := cached.List(ctx, &list); err != nil {
		return "", fmt.Errorf("looking for CDI's Deployment %s: %w", DeploymentName, err)
	}
	for i := range list.Items {
		d := &list.Items[i]
		if d.Name != DeploymentName || d.DeletionTimestamp != nil {
			continue
		}
		if is, err := ofCDI(ctx, direct, d); err != nil || is {
			return d.Namespace + "/" + d.Name, err
		}
	}
	return "", nil
}

func ofCDI(ctx context.Context, direct client.Reader, d *appsv1.Deployment) (bool, error) {
	ref := metav1.GetControllerOf(d)
	if ref == nil || ref.Kind != ownerKind || schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group != cdiv1.SchemeGroupVersion.Group {
		return false, nil
	}
	owner := &cdiv1.CDI{}
	err := direct.Get(ctx, client.ObjectKey{Name: ref.Name}, owner)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("looking for the CDI object %s: %w", ref.Name, err)
	}
	return owner.UID == ref.UID && datavolume.OperatedByCDI(owner), nil
}

// Decisive selects the objects on which Installed depends.
func Decisive() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(object client.Object) bool {
		switch object.(type) {
		case *appsv1.Deployment:
			return object.GetName() == DeploymentName
		default:
			return object.GetName() == definitionName
		}
	})
}
