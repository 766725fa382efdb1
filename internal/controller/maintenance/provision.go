package maintenance

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/expansion"
	"drydock.dev/drydock/internal/podcreation"
	"drydock.dev/drydock/internal/rules/maintenance"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/vm/vmcontroller"
)

// An earlier attempt may have created it.
func (r *Reconciler) provision(ctx context.Context, m lock.Machine, plan maintenance.Plan) error {
	vmi, err := r.instance(ctx, m)
	if err != nil {
		return err
	}
	pod, err := r.Disks.RenderProvisioningFor(ctx, vmi, plan.Pod, plan.Claims)
	if err != nil {
		return err
	}
	settings, err := r.Settings(ctx)
	if err != nil {
		return err
	}
	need, err := launcherpod.Need(vmi, settings)
	if err != nil {
		return fmt.Errorf("reckoning what the provisioning pod %s needs: %w", pod.Name, err)
	}
	err = podcreation.Create(ctx, r.Client, r.Reader, pod, need)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	is, err := versioned.Read[corev1.Pod](ctx, r.Reader, "the provisioning pod", client.ObjectKeyFromObject(pod))
	if err == nil && is != nil && !metav1.IsControlledBy(is, plan.Pod) {
		return fmt.Errorf("a pod %s exists that does not belong to the maintenance pod %s; delete it", pod.Name, plan.Pod.Name)
	}
	return err
}

// instance returns the VMI that a machine would have if it started now.
func (r *Reconciler) instance(ctx context.Context, m lock.Machine) (*v1.VirtualMachineInstance, error) {
	vm, is := m.(*v1.VirtualMachine)
	if !is || vm.Spec.Template == nil {
		return maintenance.Instance(m), nil
	}
	settings, err := r.Settings(ctx)
	if err != nil {
		return nil, err
	}
	expanded, refused, err := expansion.VM(ctx, r.Reader, vm, settings.DefaultNetworkInterface)
	if err != nil {
		return nil, err
	}
	if len(refused) > 0 {
		return nil, refused.ToAggregate()
	}
	return vmcontroller.Instance(vm, expanded), nil
}
