// Package registration maintains virt-api's APIServices of groups that other components may serve in the same cluster. They
// are in no manifest, since another component may maintain objects of the same names.
//
// It decides when such an APIService is created and deleted. It must not know how the groups are served.
package registration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Groups are versions that the same component serves.
type Groups struct {
	Versions []schema.GroupVersion
	// Yield deletes the APIServices as soon as another component serves one of the groups. kube-apiserver serves no
	// definition whose APIService somebody else created.
	Yield bool
}

// registrar maintains the APIServices of all groups. It does not touch one with another backend, and creates Drydock's when
// that is removed.
type registrar struct {
	client client.Client
	// like names an APIService whose backend is this virt-api.
	like   string
	groups []Groups
}

// Add adds the registrar to mgr. The APIServices get the Service and the authority of like, which owns them
// (decision 605).
func Add(mgr manager.Manager, like string, groups ...Groups) error {
	g := &registrar{client: mgr.GetClient(), like: like, groups: groups}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: like}}}
	})
	needsNoLeader := false
	err := builder.ControllerManagedBy(mgr).
		Named("api-registration").
		WithOptions(controller.Options{NeedLeaderElection: &needsNoLeader}).
		Watches(&apiregistrationv1.APIService{}, all, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return o.GetName() == like || slices.ContainsFunc(groups, func(of Groups) bool { return of.has(o) })
		}))).
		WatchesMetadata(definition(), all, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return slices.ContainsFunc(groups, func(of Groups) bool { return of.Yield && of.has(o) })
		}))).
		Complete(g)
	if err != nil {
		return fmt.Errorf("adding the keeper of APIServices: %w", err)
	}
	return nil
}

// Only metadata is cached.
func definition() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return object
}

// The name is the version or the resource, a dot, and the group.
func (of Groups) has(o client.Object) bool {
	_, group, _ := strings.Cut(o.GetName(), ".")
	return slices.ContainsFunc(of.Versions, func(v schema.GroupVersion) bool { return v.Group == group })
}

// Reconcile maintains the APIServices.
func (g *registrar) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var services apiregistrationv1.APIServiceList
	if err := g.client.List(ctx, &services); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing APIServices: %w", err)
	}
	definitions := &metav1.PartialObjectMetadataList{}
	definitions.SetGroupVersionKind(definition().GroupVersionKind())
	if err := g.client.List(ctx, definitions); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing definitions: %w", err)
	}
	model := named(services.Items, g.like)
	if model == nil || len(model.Spec.CABundle) == 0 || model.Spec.Service == nil || model.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	var errs []error
	for _, of := range g.groups {
		for _, s := range of.steps(services.Items, definitions.Items, model) {
			errs = append(errs, g.take(ctx, s))
		}
	}
	return reconcile.Result{}, errors.Join(errs...)
}

type step struct {
	do      verb
	service *apiregistrationv1.APIService
}

type verb string

const (
	create verb = "registering"
	update verb = "mending the registration of"
	remove verb = "withdrawing the registration of"
)

// Another process may have been faster, which the watch shows.
func (g *registrar) take(ctx context.Context, s step) error {
	var err error
	switch s.do {
	case create:
		err = g.client.Create(ctx, s.service)
	case update:
		err = g.client.Update(ctx, s.service)
	case remove:
		err = g.client.Delete(ctx, s.service, client.Preconditions{UID: &s.service.UID, ResourceVersion: &s.service.ResourceVersion})
	}
	if err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s %s: %w", s.do, s.service.Name, err)
}

func (of Groups) steps(services []apiregistrationv1.APIService, definitions []metav1.PartialObjectMetadata, model *apiregistrationv1.APIService) []step {
	yield := of.Yield && (slices.ContainsFunc(definitions, func(d metav1.PartialObjectMetadata) bool { return of.has(&d) }) ||
		slices.ContainsFunc(services, func(s apiregistrationv1.APIService) bool { return of.has(&s) && elsewhere(&s, model) }))
	var steps []step
	for _, version := range of.Versions {
		present := named(services, version.Version+"."+version.Group)
		switch {
		case present == nil && !yield:
			steps = append(steps, step{create, registration(version, model)})
		case present == nil || present.DeletionTimestamp != nil:
		case elsewhere(present, model):
			if released := release(present, model); released != nil {
				steps = append(steps, step{update, released})
			}
		case yield:
			steps = append(steps, step{remove, present})
		case !bytes.Equal(present.Spec.CABundle, model.Spec.CABundle):
			changed := present.DeepCopy()
			changed.Spec.CABundle = model.Spec.CABundle
			steps = append(steps, step{update, changed})
		}
	}
	return steps
}

// elsewhere reports whether an APIService has another backend than the model, or is kube-apiserver's own.
func elsewhere(present, model *apiregistrationv1.APIService) bool {
	service := present.Spec.Service
	return service == nil || service.Namespace != model.Spec.Service.Namespace || service.Name != model.Spec.Service.Name
}

// release returns an APIService that another component has taken over, without Drydock's owner reference, so that it
// is not deleted with Drydock; nil without such a reference.
func release(present, model *apiregistrationv1.APIService) *apiregistrationv1.APIService {
	owned := func(o metav1.OwnerReference) bool { return o.UID == model.UID }
	if !slices.ContainsFunc(present.OwnerReferences, owned) {
		return nil
	}
	released := present.DeepCopy()
	released.OwnerReferences = slices.DeleteFunc(released.OwnerReferences, owned)
	if bytes.Equal(present.Spec.CABundle, model.Spec.CABundle) {
		released.Spec.CABundle = nil
	}
	return released
}

func registration(version schema.GroupVersion, model *apiregistrationv1.APIService) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{
			Name: version.Version + "." + version.Group, Labels: model.Labels,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: apiregistrationv1.SchemeGroupVersion.String(), Kind: "APIService",
				Name: model.Name, UID: model.UID,
			}},
		},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: version.Group, Version: version.Version,
			GroupPriorityMinimum: model.Spec.GroupPriorityMinimum, VersionPriority: model.Spec.VersionPriority,
			Service: model.Spec.Service.DeepCopy(), CABundle: model.Spec.CABundle,
		},
	}
}

func named(services []apiregistrationv1.APIService, name string) *apiregistrationv1.APIService {
	i := slices.IndexFunc(services, func(s apiregistrationv1.APIService) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return services[i].DeepCopy()
}
