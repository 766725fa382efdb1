package api

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/api/cloneright"
	"drydock.dev/drydock/internal/api/defaults"
	"drydock.dev/drydock/internal/api/validate"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// If CDI serves DataVolumes, CDI judges them. But a user's own note about who may clone is always dropped: it would count
// when Drydock serves again.
func addDataVolumes(add adder, settings *clusterconfig.Current, right cloneright.Checker) {
	mutating, err := admission.MutatingAsking(func(ctx context.Context, r admission.Request[cdiv1.DataVolume]) error {
		mayClone := false
		if r.Operation == admissionv1.Create && !settings.Get().CDI {
			if r.New.Namespace == "" {
				r.New.Namespace = r.Namespace
			}
			var err error
			if mayClone, err = mayCloneInto(ctx, r, right); err != nil {
				return err
			}
		}
		defaults.DataVolume(r.New, r.Old, mayClone)
		return nil
	})
	add(mutateDV, mutating, err)
	validating, err := admission.Validating(func(r admission.Request[cdiv1.DataVolume]) field.ErrorList {
		if settings.Get().CDI {
			return nil
		}
		return validate.DataVolume(r.New, r.Old)
	}, advice(func(dv, old *cdiv1.DataVolume) []string {
		if settings.Get().CDI {
			return nil
		}
		return validate.DataVolumeWarnings(dv, old)
	}))
	add(validateDV, validating, err)
	// The same manifest may install CDI, so no CDI object is refused.
	objects, err := admission.Validating(func(admission.Request[cdiv1.CDI]) field.ErrorList { return nil }, advice(func(object, old *cdiv1.CDI) []string {
		if settings.Get().CDI {
			return nil
		}
		return validate.CDIWarnings(object, old)
	}))
	add(validateCDI, objects, err)
}

// mayCloneInto reports whether the DataVolume's creator may read its source. A component creates a DataVolume from a
// VM's template for the user who wrote the source there, who must still have the right.
func mayCloneInto(ctx context.Context, r admission.Request[cdiv1.DataVolume], right cloneright.Checker) (bool, error) {
	user := r.User
	if r.Component() {
		if datavolume.AllowedSource(r.New) == "" {
			return true, nil
		}
		writer, noted, err := writerOf(ctx, r, right)
		if err != nil || !noted {
			return err == nil, err
		}
		user = writer
	}
	return right.Allowed(ctx, user, &r.New.Spec, r.Namespace)
}

// writerOf returns the user who wrote the DataVolume's source into its VM, false for a VM of an earlier version, which has
// no note and was judged at its admission. A source that the VM no longer has is an error: virt-controller has read an old
// VM.
func writerOf(ctx context.Context, r admission.Request[cdiv1.DataVolume], right cloneright.Checker) (authenticationv1.UserInfo, bool, error) {
	owner := metav1.GetControllerOf(r.New)
	if owner == nil || owner.Kind != v1.VirtualMachineGroupVersionKind.Kind {
		return authenticationv1.UserInfo{}, false, nil
	}
	var vm v1.VirtualMachine
	if err := right.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: owner.Name}, &vm); err != nil {
		return authenticationv1.UserInfo{}, false, fmt.Errorf("reading VirtualMachine %s/%s, for which the DataVolume is made: %w", r.Namespace, owner.Name, err)
	}
	if vm.UID != owner.UID {
		return authenticationv1.UserInfo{}, false, fmt.Errorf("VirtualMachine %s/%s, for which the DataVolume is made, is another one by now", r.Namespace, owner.Name)
	}
	if !cloneright.HasSource(&vm, r.New) {
		return authenticationv1.UserInfo{}, false, fmt.Errorf("VirtualMachine %s/%s, for which the DataVolume is made, has no template with its source any more", r.Namespace, owner.Name)
	}
	user, noted := cloneright.Writer(&vm, r.New)
	return user, noted, nil
}

// mayCloneAll refuses dataVolumeTemplates whose source the VM's writer may not read: virt-controller will create the
// DataVolumes under its own name. A component only changes the names of judged sources (decision 342).
func mayCloneAll(ctx context.Context, r admission.Request[v1.VirtualMachine], right cloneright.Checker) (field.ErrorList, error) {
	if r.Component() {
		return nil, nil
	}
	var errs field.ErrorList
	for _, i := range validate.NewTemplates(r.New, r.Old) {
		spec := &r.New.Spec.DataVolumeTemplates[i].Spec
		allowed, err := right.Allowed(ctx, r.User, spec, r.Namespace)
		if err != nil {
			return nil, err
		}
		if !allowed {
			namespace, _, _ := datavolume.SourceOf(spec, r.Namespace)
			at := validate.CloneNamespace(spec, field.NewPath("spec", "dataVolumeTemplates").Index(i).Child("spec"))
			errs = append(errs, field.Forbidden(at, validate.CloneForbidden(namespace)))
		}
	}
	return errs, nil
}
