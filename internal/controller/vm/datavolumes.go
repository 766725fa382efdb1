package vm

import (
	"cmp"
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
	"drydock.dev/drydock/internal/rules/vm/vmcontroller"
)

const dataVolumeIndex = "drydock.datavolumes"

// dataVolumeNames returns the VM's DataVolumes, and its claims that may have none.
func dataVolumeNames(object client.Object) []string {
	vm := object.(*v1.VirtualMachine)
	var names []string
	for i := range vm.Spec.DataVolumeTemplates {
		names = append(names, vm.Spec.DataVolumeTemplates[i].Name)
	}
	if vm.Spec.Template == nil {
		return names
	}
	for _, name := range volumeclaim.Names(vm.Spec.Template.Spec.Volumes) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// namedOnly returns the DataVolumes that the template's volumes name and the VM does not create.
func namedOnly(vm *v1.VirtualMachine) []string {
	if vm.Spec.Template == nil {
		return nil
	}
	made := map[string]bool{}
	for i := range vm.Spec.DataVolumeTemplates {
		made[vm.Spec.DataVolumeTemplates[i].Name] = true
	}
	var names []string
	for i := range vm.Spec.Template.Spec.Volumes {
		if d := vm.Spec.Template.Spec.Volumes[i].DataVolume; d != nil && !made[d.Name] {
			names = append(names, d.Name)
		}
	}
	return names
}

// usersOfDataVolume returns the VMs that use a DataVolume or a claim.
func (r *Reconciler) usersOfDataVolume(ctx context.Context, object client.Object) []reconcile.Request {
	var list v1.VirtualMachineList
	err := r.Client.List(ctx, &list, client.InNamespace(object.GetNamespace()), client.MatchingFields{dataVolumeIndex: object.GetName()})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the VMs of a DataVolume", "dataVolume", client.ObjectKeyFromObject(object))
		return nil
	}
	out := make([]reconcile.Request, 0, len(list.Items)+1)
	if name := object.GetAnnotations()[volumemigration.DrainedVM]; name != "" {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}})
	}
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

func beginningsAndEnds() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// A DataVolume missing in the cache is read from the API server, so that none is created twice.
func (r *Reconciler) observeDataVolumes(ctx context.Context, o *vmcontroller.Observed) error {
	if o.VM.DeletionTimestamp != nil {
		return nil
	}
	from := versioned.CacheFirst(r.Client, r.Reader)
	for i := range o.VM.Spec.DataVolumeTemplates {
		key := types.NamespacedName{Namespace: o.VM.Namespace, Name: o.VM.Spec.DataVolumeTemplates[i].Name}
		observed := vmcontroller.DataVolume{Name: key.Name}
		var err error
		if observed.Object, err = versioned.Read[cdiv1.DataVolume](ctx, from, "the DataVolume", key); err != nil {
			return err
		}
		if observed.Object == nil {
			if observed.Claim, err = versioned.Read[corev1.PersistentVolumeClaim](ctx, from, "the claim", key); err != nil {
				return err
			}
		}
		o.DataVolumes = append(o.DataVolumes, observed)
	}
	for _, name := range namedOnly(o.VM) {
		dv, err := versioned.Read[cdiv1.DataVolume](ctx, r.Client, "the DataVolume", types.NamespacedName{Namespace: o.VM.Namespace, Name: name})
		if err != nil {
			return err
		}
		if dv != nil {
			o.NamedDataVolumes = append(o.NamedDataVolumes, dv)
		}
	}
	return nil
}

// keepDataVolumes creates missing DataVolumes and adopts those that have lost their VM. A failure does not stop the
// others.
func (r *Reconciler) keepDataVolumes(ctx context.Context, vm *v1.VirtualMachine, plan vmcontroller.Plan) error {
	var failed []error
	for _, dv := range plan.AdoptDataVolumes {
		to := dv.DeepCopy()
		datavolume.GiveTo(vm, to)
		if err := versioned.Patch(ctx, r.Client, "adopting the DataVolume", dv, to); err != nil {
			failed = append(failed, err)
		}
	}
	for _, dv := range plan.CreateDataVolumes {
		err := r.Client.Create(ctx, dv)
		switch {
		case apierrors.IsAlreadyExists(err):
			// Its event wakes the loop.
		case err != nil:
			failed = append(failed, err)
		default:
			r.Recorder.Eventf(vm, dv, corev1.EventTypeNormal, "SuccessfulDataVolumeCreate", "CreateDataVolume",
				"Created DataVolume %s", dv.Name)
			failed = append(failed, r.tellOfSource(ctx, vm, dv))
		}
	}
	return errors.Join(failed...)
}

// tellOfSource emits KubeVirt's event when a new DataVolume begins to wait for the claim that it copies.
func (r *Reconciler) tellOfSource(ctx context.Context, vm *v1.VirtualMachine, dv *cdiv1.DataVolume) error {
	if dv.Spec.Source == nil || dv.Spec.Source.PVC == nil {
		return nil
	}
	of := types.NamespacedName{Namespace: cmp.Or(dv.Spec.Source.PVC.Namespace, dv.Namespace), Name: dv.Spec.Source.PVC.Name}
	source, err := versioned.Read[corev1.PersistentVolumeClaim](ctx, r.Client, "the source of the DataVolume "+dv.Name, of)
	if err == nil && source == nil {
		r.Recorder.Eventf(vm, dv, corev1.EventTypeWarning, "SourcePVCNotAvailabe", "CreateDataVolume",
			"Source PVC %s not available: DataVolume %s waits until it exists", of, dv.Name)
	}
	return err
}
