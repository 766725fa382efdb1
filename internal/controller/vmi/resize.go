package vmi

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/podcreation"
	"drydock.dev/drydock/internal/rules/clusterconfig"
	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/podlimits"
	"drydock.dev/drydock/internal/rules/podresize"
	"drydock.dev/drydock/internal/rules/vmilifecycle"
)

// askForResources finds out what the launcher pod of a guest that changes is to have.
func (r *Reconciler) askForResources(ctx context.Context, o *vmilifecycle.Observed) error {
	settings, err := r.Settings(ctx)
	if err != nil {
		return err
	}
	resources, err := launcherpod.Resized(o.VMI, settings)
	if err != nil {
		return fmt.Errorf("finding out what the launcher pod of VMI %s/%s is to have: %w", o.VMI.Namespace, o.VMI.Name, err)
	}
	o.Resources = &resources
	return r.keepLimits(ctx, o, settings)
}

// keepLimits adds to what the pod is to have the limits that its namespace has asked for.
func (r *Reconciler) keepLimits(ctx context.Context, o *vmilifecycle.Observed, settings clusterconfig.Settings) error {
	if o.Pod == nil {
		return nil
	}
	has := podresize.Has(o.Pod)
	if has == nil || !podlimits.Beside(*has, *o.Resources) {
		return nil
	}
	need, err := launcherpod.Need(o.VMI, settings)
	if err != nil {
		return fmt.Errorf("reckoning what the launcher pod of VMI %s/%s needs: %w", o.VMI.Namespace, o.VMI.Name, err)
	}
	namespace, err := podcreation.Namespace(ctx, r.Reader, o.VMI.Namespace)
	if err != nil {
		return err
	}
	*o.Resources = podlimits.Keep(*has, *o.Resources, namespace, need)
	return nil
}

// resize asks for the resources of the launcher pod. A refusal, as by a quota, is told by the VMI, and given
// back, which has the loop try again. vmi is the VMI as it has just been written.
func (r *Reconciler) resize(ctx context.Context, o vmilifecycle.Observed, vmi *v1.VirtualMachineInstance) error {
	patch, err := podresize.Patch(o.Pod, *o.Resources)
	if err != nil {
		return err
	}
	err = r.Client.SubResource("resize").Patch(ctx, o.Pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch))
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // it is seen in the pod, and another pod is another plan
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		current := r.written.Newer(vmi)
		if _, failed := r.patch(ctx, current, vmilifecycle.ResizeRefused(current, *o.Resources, err, r.Now())); failed != nil {
			ctrl.LoggerFrom(ctx).Error(failed, "reporting a pod that could not be resized")
		}
	}
	return fmt.Errorf("resizing the launcher pod of VMI %s/%s: %w", o.VMI.Namespace, o.VMI.Name, err)
}
