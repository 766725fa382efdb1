package api

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/api/defaults"
	"drydock.dev/drydock/internal/api/validate"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

// Only pods with the label reach the webhooks.
func addMaintenance(add adder, cluster client.Reader) {
	mutating, err := admission.MutatingAsking(func(ctx context.Context, r admission.Request[corev1.Pod]) error {
		if r.Operation != admissionv1.Create {
			return nil
		}
		of, err := maintained(ctx, cluster, r)
		if err == nil {
			defaults.MaintenancePod(r.New, of)
		}
		return err
	})
	add(mutateMaintenance, mutating, err)
	validating, err := admission.ValidatingAsking(func(ctx context.Context, r admission.Request[corev1.Pod]) (field.ErrorList, error) {
		switch {
		case r.Operation != admissionv1.Create && admission.IsController(r.Username):
			return nil, nil
		case r.Operation != admissionv1.Create:
			return validate.MaintenancePodUpdate(r.New, r.Old), nil
		}
		of, err := maintained(ctx, cluster, r)
		if err != nil {
			return nil, err
		}
		return validate.MaintenancePod(r.New, of), nil
	})
	add(validateMaintenance, validating, err)
}

func maintained(ctx context.Context, cluster client.Reader, r admission.Request[corev1.Pod]) (lock.Machine, error) {
	name := types.NamespacedName{Namespace: r.Namespace, Name: lock.For(r.New)}
	if len(validation.IsDNS1123Subdomain(name.Name)) > 0 {
		return nil, nil
	}
	for _, machine := range []lock.Machine{&v1.VirtualMachine{}, &v1.VirtualMachineInstance{}} {
		switch err := cluster.Get(ctx, name, machine); {
		case err == nil:
			return machine, nil
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading %s %s: %w", lock.Noun(machine), name, err)
		}
	}
	return nil, nil
}
