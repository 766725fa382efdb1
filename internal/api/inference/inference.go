// Package inference infers a VM's instance type and preference from the labels of a volume's claim, DataVolume or
// DataSource, or of their sources. Package instancetype decides which labels count.
//
// It must read only the labels of objects in other namespaces, and only for users who may clone from there: nobody else
// may find out which objects exist.
package inference

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

// most bounds how many objects are followed: DataSources can point at each other.
const most = 8

// Inferrer infers for one user.
type Inferrer struct {
	// Cluster must not be a cache.
	Cluster  client.Reader
	MayClone func(context.Context, authenticationv1.UserInfo, *cdiv1.DataVolumeSpec, string) (bool, error)
	User     authenticationv1.UserInfo
}

// Infer writes the inferred type and preference into a VM. If one can't be inferred, it leaves the reference and
// returns an error for the field, or removes the reference if the VM ignores failures.
func (i Inferrer) Infer(ctx context.Context, vm *v1.VirtualMachine) (field.ErrorList, error) {
	var errs field.ErrorList
	toType, toPreference := instancetype.References(vm)
	for _, r := range []*instancetype.Reference{toType, toPreference} {
		if r == nil || r.InferFromVolume == "" || len(r.Check()) > 0 {
			continue
		}
		inferred, err := i.infer(ctx, vm, r)
		var why *instancetype.Uninferable
		switch {
		case err == nil, errors.As(err, &why) && why.Silent && r.Ignores():
			r.Inferred(vm, inferred)
		case errors.As(err, &why):
			errs = append(errs, field.Forbidden(r.Path().Child("inferFromVolume"), why.Error()))
		default:
			return nil, err
		}
	}
	return errs, nil
}

func (i Inferrer) infer(ctx context.Context, vm *v1.VirtualMachine, r *instancetype.Reference) (*instancetype.Reference, error) {
	bearer, template, err := r.FirstBearer(vm)
	if err != nil {
		return nil, err
	}
	if template != nil {
		if inferred, says := r.Infer(template.Labels); says {
			return inferred, nil
		}
		if bearer, err = r.NextBearer(&template.Spec, vm.Namespace); err != nil {
			return nil, err
		}
	}
	for range most {
		if err := i.permit(ctx, r, bearer, vm.Namespace); err != nil {
			return nil, err
		}
		labels, next, err := i.ask(ctx, r, bearer)
		if err != nil {
			return nil, err
		}
		if inferred, says := r.Infer(labels); says {
			return inferred, nil
		}
		if next == nil {
			return nil, r.Unlabeled(bearer)
		}
		bearer = *next
	}
	return nil, r.Unlabeled(bearer)
}

// permit refuses an object in a namespace from which the user may not clone, whatever object led there.
func (i Inferrer) permit(ctx context.Context, r *instancetype.Reference, b instancetype.Bearer, own string) error {
	if b.Namespace == own {
		return nil
	}
	clone := &cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: b.Namespace, Name: b.Name}}}
	may, err := i.MayClone(ctx, i.User, clone, own)
	if err == nil && !may {
		err = r.Refuse(fmt.Sprintf("the user may not clone from the namespace %s", b.Namespace))
	}
	return err
}

func (i Inferrer) ask(ctx context.Context, r *instancetype.Reference, b instancetype.Bearer) (map[string]string, *instancetype.Bearer, error) {
	switch b.Kind {
	case instancetype.BearerDataVolume:
		dv := &cdiv1.DataVolume{}
		err := i.Cluster.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Name}, dv)
		switch {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			// The claim of its name is next.
			return nil, &instancetype.Bearer{Kind: instancetype.BearerClaim, Namespace: b.Namespace, Name: b.Name}, nil
		case err != nil:
			return nil, nil, fmt.Errorf("reading %s: %w", b, err)
		}
		if _, says := r.Infer(dv.Labels); says {
			return dv.Labels, nil, nil
		}
		next, err := r.NextBearer(&dv.Spec, b.Namespace)
		return nil, &next, err
	case instancetype.BearerDataSource:
		source := &cdiv1.DataSource{}
		if err := i.read(ctx, r, b, source); err != nil {
			return nil, nil, err
		}
		if _, says := r.Infer(source.Labels); says {
			return source.Labels, nil, nil
		}
		next, err := r.SourceBearer(source)
		return nil, &next, err
	case instancetype.BearerSnapshot:
		return i.askLabels(ctx, r, b, schema.GroupVersionKind{Group: "snapshot.storage.k8s.io", Version: "v1", Kind: b.Kind})
	}
	return i.askLabels(ctx, r, b, schema.GroupVersionKind{Version: "v1", Kind: b.Kind})
}

func (i Inferrer) askLabels(ctx context.Context, r *instancetype.Reference, b instancetype.Bearer, kind schema.GroupVersionKind) (map[string]string, *instancetype.Bearer, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	err := i.read(ctx, r, b, object)
	return object.Labels, nil, err
}

func (i Inferrer) read(ctx context.Context, r *instancetype.Reference, b instancetype.Bearer, into client.Object) error {
	if len(validation.IsDNS1123Subdomain(b.Name)) > 0 || len(validation.IsDNS1123Label(b.Namespace)) > 0 {
		return r.Refuse(b.String() + " does not exist")
	}
	err := i.Cluster.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Name}, into)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return r.Refuse(b.String() + " does not exist")
	case err != nil:
		return fmt.Errorf("reading %s: %w", b, err)
	}
	return nil
}
