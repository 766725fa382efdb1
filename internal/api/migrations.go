package api

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1alpha1 "kubevirt.io/api/migrations/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/api/defaults"
	"drydock.dev/drydock/internal/api/validate"
	"drydock.dev/drydock/internal/pagedlist"
)

// A new migration is judged by its VMI in the API server.
func addMigrations(add adder, cluster client.Reader) {
	mutating, err := admission.Mutating(func(r admission.Request[v1.VirtualMachineInstanceMigration]) {
		if r.Operation == admissionv1.Create {
			defaults.Migration(r.New)
		}
	})
	add(mutateVMIM, mutating, err)
	validating, err := admission.ValidatingAsking(func(ctx context.Context, r admission.Request[v1.VirtualMachineInstanceMigration]) (field.ErrorList, error) {
		if r.Operation != admissionv1.Create {
			return validate.MigrationUpdate(r.New, r.Old), nil
		}
		r.New.Namespace = r.Namespace
		return newMigration(ctx, r, cluster)
	}, advice(validate.MigrationWarnings))
	add(validateVMIM, validating, err)
	policy, err := admission.Validating(func(r admission.Request[migrationsv1alpha1.MigrationPolicy]) field.ErrorList {
		return validate.MigrationPolicy(r.New, r.Old)
	})
	add(validateMP, policy, err)
}

func newMigration(ctx context.Context, r admission.Request[v1.VirtualMachineInstanceMigration], cluster client.Reader) (field.ErrorList, error) {
	name := types.NamespacedName{Namespace: r.Namespace, Name: r.New.Spec.VMIName}
	if len(validation.IsDNS1123Subdomain(name.Name)) > 0 {
		// No VMI can have such a name, and the API server would reject the request.
		return validate.Migration(r.New, r.Component(), nil, nil), nil
	}
	vmi := &v1.VirtualMachineInstance{}
	switch err := cluster.Get(ctx, name, vmi); {
	case apierrors.IsNotFound(err):
		vmi = nil
	case err != nil:
		return nil, fmt.Errorf("reading VMI %s: %w", name, err)
	}
	// Ended ones stay until somebody deletes them.
	others, err := pagedlist.Collect(ctx, cluster, &v1.VirtualMachineInstanceMigrationList{},
		func(other *v1.VirtualMachineInstanceMigration) (v1.VirtualMachineInstanceMigration, bool) {
			return v1.VirtualMachineInstanceMigration{
				ObjectMeta: metav1.ObjectMeta{Name: other.Name}, Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: other.Spec.VMIName},
				Status: v1.VirtualMachineInstanceMigrationStatus{Phase: other.Status.Phase},
			}, other.Name == r.New.Name || !other.IsFinal()
		}, client.InNamespace(r.Namespace), client.MatchingFields{"spec.vmiName": name.Name})
	if err != nil {
		return nil, fmt.Errorf("looking for other migrations of VMI %s: %w", name, err)
	}
	return validate.Migration(r.New, r.Component(), vmi, others), nil
}
