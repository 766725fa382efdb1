package cdi

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// What CDI is known by.
const (
	DeploymentName = "cdi-deployment"
	definitionName = "cdis.cdi.kubevirt.io"
)

var definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// Definition is the kind under which definitions are in the cache: their
// metadata is all that is looked at.
func Definition() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(definitionKind)
	return object
}

// Installed tells where CDI's Deployment is ("namespace/name"), empty when CDI is
// not installed and DataVolumes are Drydock's to serve.
func Installed(ctx context.Context, c client.Reader) (string, error) {
	err := c.Get(ctx, client.ObjectKey{Name: definitionName}, Definition())
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("looking for CDI's definition %s: %w", definitionName, err)
	}
	if err != nil {
		return "", nil
	}
	var list appsv1.DeploymentList
	if err := c.List(ctx, &list); err != nil {
		return "", fmt.Errorf("looking for CDI's Deployment %s: %w", DeploymentName, err)
	}
	for i := range list.Items {
		if d := &list.Items[i]; d.Name == DeploymentName && d.DeletionTimestamp == nil {
			return d.Namespace + "/" + d.Name, nil
		}
	}
	return "", nil
}

// Decisive lets those objects through by which Installed decides.
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
