package upload

import (
	"bytes"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// apiServiceName is what kube-apiserver finds Tokens by.
var apiServiceName = GroupVersion.Version + "." + GroupVersion.Group

// registrar keeps the APIService of Tokens. It is no part of the manifests,
// because where CDI is installed, CDI owns an object of this very name, and
// keeps it: an APIService that leads elsewhere is not touched. When CDI goes, and
// its APIService with it, this one is made.
type registrar struct {
	client client.Client
	// like is the name of an APIService that leads to this virt-api as well.
	like string
}

// Register has mgr keep the APIService, with the Service and the authority of
// the APIService like, which also owns it: who uninstalls the one is rid of the
// other. See decision 106.
func Register(mgr manager.Manager, like string) error {
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetName() == like || o.GetName() == apiServiceName
	})
	needsNoLeader := false
	err := builder.ControllerManagedBy(mgr).
		Named("upload-api").
		WithOptions(controller.Options{NeedLeaderElection: &needsNoLeader}).
		Watches(&apiregistrationv1.APIService{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(ours)).
		Complete(&registrar{client: mgr.GetClient(), like: like})
	if err != nil {
		return fmt.Errorf("adding the keeper of APIService %s: %w", apiServiceName, err)
	}
	return nil
}

// Reconcile makes or mends the APIService.
func (g *registrar) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	model, err := g.get(ctx, g.like)
	if err != nil || model == nil {
		return reconcile.Result{}, err
	}
	present, err := g.get(ctx, apiServiceName)
	if err != nil {
		return reconcile.Result{}, err
	}
	wanted := registration(present, model)
	switch {
	case wanted == nil:
		return reconcile.Result{}, nil
	case present == nil:
		err = g.client.Create(ctx, wanted)
	default:
		err = g.client.Update(ctx, wanted)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
		return reconcile.Result{}, fmt.Errorf("registering %s: %w", apiServiceName, err)
	}
	// The watch shows which process was faster.
	return reconcile.Result{}, nil
}

func (g *registrar) get(ctx context.Context, name string) (*apiregistrationv1.APIService, error) {
	service := &apiregistrationv1.APIService{}
	if err := g.client.Get(ctx, client.ObjectKey{Name: name}, service); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading APIService %s: %w", name, err)
	}
	return service, nil
}

// registration is the APIService to be written, nil when there is nothing to do.
func registration(present, model *apiregistrationv1.APIService) *apiregistrationv1.APIService {
	if len(model.Spec.CABundle) == 0 || model.Spec.Service == nil || model.DeletionTimestamp != nil {
		return nil
	}
	if present == nil {
		return &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{
				Name: apiServiceName, Labels: model.Labels,
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: apiregistrationv1.SchemeGroupVersion.String(), Kind: "APIService",
					Name: model.Name, UID: model.UID,
				}},
			},
			Spec: apiregistrationv1.APIServiceSpec{
				Group: GroupVersion.Group, Version: GroupVersion.Version,
				GroupPriorityMinimum: model.Spec.GroupPriorityMinimum, VersionPriority: model.Spec.VersionPriority,
				Service: model.Spec.Service.DeepCopy(), CABundle: model.Spec.CABundle,
			},
		}
	}
	service := present.Spec.Service
	elsewhere := service == nil || service.Namespace != model.Spec.Service.Namespace || service.Name != model.Spec.Service.Name
	if elsewhere || bytes.Equal(present.Spec.CABundle, model.Spec.CABundle) {
		return nil
	}
	changed := present.DeepCopy()
	changed.Spec.CABundle = model.Spec.CABundle
	return changed
}
