package vm

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/migration/evacuation"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/vm/vmcontroller"
)

// observeDrainDisks observes the DataVolumes to which a drain may move the VMI's disks and, during a drain, the
// disks' claims.
func (r *Reconciler) observeDrainDisks(ctx context.Context, o *vmcontroller.Observed) error {
	o.DrainDisks = nil
	if o.VMI == nil || !metav1.IsControlledBy(o.VMI, o.VM) {
		return nil
	}
	for _, m := range volumemigration.MovesOffNode(o.VMI) {
		disk := vmcontroller.DrainDisk{Move: m}
		var err error
		if disk.DataVolume, err = versioned.Read[cdiv1.DataVolume](ctx, r.Client, "the DataVolume", types.NamespacedName{Namespace: o.VM.Namespace, Name: m.To}); err != nil {
			return err
		}
		if evacuation.Marked(o.VMI) {
			if disk.Claim, err = versioned.Read[corev1.PersistentVolumeClaim](ctx, r.Client, "the claim", types.NamespacedName{Namespace: o.VM.Namespace, Name: m.From}); err != nil {
				return err
			}
		}
		o.DrainDisks = append(o.DrainDisks, disk)
	}
	return nil
}

func (r *Reconciler) dropDestinations(ctx context.Context, vm *v1.VirtualMachine, plan vmcontroller.Plan) error {
	for _, dv := range plan.DeleteDestinations {
		gone, err := deletion.Exact(ctx, r.Client, dv, "DataVolume")
		if err != nil {
			return err
		}
		if !gone {
			r.Recorder.Eventf(vm, dv, corev1.EventTypeNormal, "SuccessfulDataVolumeDelete", "DeleteDataVolume",
				"Deleted DataVolume %s: no disk goes there any more", dv.Name)
		}
	}
	return nil
}

// makeDestinations creates the DataVolumes to which disks move because their node is drained.
func (r *Reconciler) makeDestinations(ctx context.Context, vm *v1.VirtualMachine, plan vmcontroller.Plan) error {
	for _, dv := range plan.CreateDestinations {
		err := r.Client.Create(ctx, dv)
		switch {
		case apierrors.IsAlreadyExists(err):
			// Its event wakes the loop.
		case err != nil:
			return fmt.Errorf("creating the DataVolume %s, to which a disk goes because its node is drained: %w", dv.Name, err)
		default:
			r.Recorder.Eventf(vm, dv, corev1.EventTypeNormal, "SuccessfulDataVolumeCreate", "CreateDataVolume",
				"Created DataVolume %s: a disk goes there, because its node is drained", dv.Name)
		}
	}
	return nil
}
