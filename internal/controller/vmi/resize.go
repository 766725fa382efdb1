package vmi

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/podcreation"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podlimits"
	"drydock.dev/drydock/internal/rules/pod/podresize"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

func (r *Reconciler) askForResources(ctx context.Context, o *vmicontroller.Observed) error {
	settings, err := r.Settings(ctx)
	if err != nil {
		return err
	}
	resources, err := launcherpod.Resized(o.VMI, settings)
	if err != nil {
		return fmt.Errorf("finding out what the launcher pod of VMI %s/%s is to have: %w", o.VMI.Namespace, o.VMI.Name, err)
	}
	o.Resources = &resources
	// The limits that the namespace required stay.
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

// resize requests the launcher pod's new resources. A refusal, for example by a quota, is also reported in the status
// of vmi, the version just written.
func (r *Reconciler) resize(ctx context.Context, o vmicontroller.Observed, vmi *v1.VirtualMachineInstance) error {
	patch, err := podresize.Patch(o.Pod, *o.Resources)
	if err != nil {
		return err
	}
	err = r.Client.SubResource("resize").Patch(ctx, o.Pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch))
	switch {
	case err == nil, versioned.Overtaken(err):
		return nil // the pod shows it, and another pod gets another plan
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		current := r.written.Newer(vmi)
		if _, failed := r.patch(ctx, current, vmicontroller.ResizeRefused(current, *o.Resources, err, r.Now())); failed != nil {
			ctrl.LoggerFrom(ctx).Error(failed, "reporting a pod that could not be resized")
		}
	}
	return fmt.Errorf("resizing the launcher pod of VMI %s/%s: %w", o.VMI.Namespace, o.VMI.Name, err)
}
