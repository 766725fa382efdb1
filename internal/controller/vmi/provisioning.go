package vmi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/deletion"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/podcreation"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
	"drydock.dev/drydock/internal/rules/storage/placement"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

// Once the VMI has its node, only the provisioning pod matters.
func (r *Reconciler) observeDisks(ctx context.Context, o *vmicontroller.Observed) error {
	key := types.NamespacedName{Namespace: o.VMI.Namespace, Name: launcherpod.ProvisioningName(o.VMI)}
	pod, err := versioned.Read[corev1.Pod](ctx, r.Client, "the provisioning pod", key)
	if err != nil {
		return err
	}
	if pod != nil && metav1.IsControlledBy(pod, o.VMI) {
		o.Provisioning = pod
	}
	if o.VMI.Status.NodeName != "" {
		return nil
	}
	o.Claims, err = r.claims(ctx, o.VMI)
	return err
}

// A claim created together with its VMI is not reported missing because the cache is late.
func (r *Reconciler) claims(ctx context.Context, vmi *v1.VirtualMachineInstance) ([]placement.Claim, error) {
	return readClaims(ctx, versioned.CacheFirst(r.Client, r.Reader), vmi, launcherpod.StartClaims(vmi))
}

func readClaims(ctx context.Context, from client.Reader, vmi *v1.VirtualMachineInstance, names []string) ([]placement.Claim, error) {
	var out []placement.Claim
	for _, name := range names {
		c := placement.Claim{Name: name}
		var err error
		if c.Claim, err = versioned.Read[corev1.PersistentVolumeClaim](ctx, from, "the claim", types.NamespacedName{Namespace: vmi.Namespace, Name: name}); err != nil {
			return nil, err
		}
		c.Source = placement.Source(c.Claim, placement.NamesDataVolume(vmi.Spec.Volumes, name), name)
		if c.Source != "" {
			key := types.NamespacedName{Namespace: vmi.Namespace, Name: c.Source}
			if c.DataVolume, err = versioned.Read[cdiv1.DataVolume](ctx, from, "the DataVolume", key); err != nil {
				return nil, err
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// A foreign claim is judged when it is observed.
func (r *Reconciler) createState(ctx context.Context, vmi *v1.VirtualMachineInstance) error {
	settings, err := r.Settings(ctx)
	if err != nil {
		return err
	}
	// The default is the storage class of VMs' disks.
	class := settings.VMStateStorageClass
	if class == "" {
		var list storagev1.StorageClassList
		if err := r.Client.List(ctx, &list); err != nil {
			return fmt.Errorf("listing the storage classes: %w", err)
		}
		if found := datavolume.Class(list.Items, nil); found != nil {
			class = found.Name
		}
	}
	var profile *cdiv1.StorageProfile
	if class != "" {
		if profile, err = versioned.Read[cdiv1.StorageProfile](ctx, r.Client, "the StorageProfile", types.NamespacedName{Name: class}); err != nil {
			return err
		}
	}
	claim := stateclaim.Claim(vmi, class, profile)
	if err := r.Client.Create(ctx, claim); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the PVC %s of the VM's state: %w", claim.Name, err)
	}
	return nil
}

// Places asks the API server for claims, with the DataVolumes that fill them, and the bound ones' topologies.
func (r *Reconciler) Places(ctx context.Context, vmi *v1.VirtualMachineInstance, names []string) ([]placement.Claim, []placement.Topology, error) {
	claims, err := readClaims(ctx, r.Reader, vmi, names)
	if err != nil {
		return nil, nil, err
	}
	volumes := map[string]*corev1.PersistentVolume{}
	for i := range claims {
		c := &claims[i]
		if c.Claim == nil || c.Claim.Status.Phase != corev1.ClaimBound {
			continue
		}
		pv, err := versioned.Read[corev1.PersistentVolume](ctx, r.Reader, "the volume", types.NamespacedName{Name: c.Claim.Spec.VolumeName})
		if err != nil {
			return claims, nil, err
		}
		if pv != nil {
			volumes[c.Name] = pv
		}
	}
	if placement.SameTopology(volumes) {
		return claims, nil, nil
	}
	var nodes corev1.NodeList
	if err := r.Reader.List(ctx, &nodes); err != nil {
		return claims, nil, fmt.Errorf("listing the nodes to find one that has all of a VMI's disks: %w", err)
	}
	return claims, placement.Topologies(claims, volumes, nodes.Items), nil
}

// RenderProvisioningFor renders the provisioning pod of a maintenance pod, for a VMI that is not to start.
func (r *Reconciler) RenderProvisioningFor(ctx context.Context, vmi *v1.VirtualMachineInstance, pod *corev1.Pod, claims []string) (*corev1.Pod, error) {
	settings, err := r.Settings(ctx)
	if err != nil {
		return nil, err
	}
	facts, err := r.facts(ctx, vmi, nil)
	if err != nil {
		return nil, err
	}
	out, err := launcherpod.RenderProvisioningFor(pod, claims, vmi, settings, r.LauncherImage, facts)
	if err != nil {
		return nil, fmt.Errorf("rendering the provisioning pod of the maintenance pod %s: %w", pod.Name, err)
	}
	return out, nil
}

func (r *Reconciler) provision(ctx context.Context, o vmicontroller.Observed, plan vmicontroller.Plan) error {
	if plan.CreateState {
		if err := r.createState(ctx, o.VMI); err != nil {
			return r.reportFailedCreate(ctx, o.VMI, "the claim of the VM's state", err)
		}
	}
	switch {
	case plan.Disks.Create:
		if err := r.createProvisioning(ctx, o.VMI); err != nil {
			return r.reportFailedCreate(ctx, o.VMI, "the provisioning pod", err)
		}
	case plan.Disks.Delete:
		return deletion.Once(ctx, r.Client, &r.unplaced, o.VMI, o.Provisioning, "the pod")
	}
	return nil
}

func (r *Reconciler) createProvisioning(ctx context.Context, vmi *v1.VirtualMachineInstance) error {
	settings, err := r.Settings(ctx)
	if err != nil {
		return err
	}
	facts, err := r.facts(ctx, vmi, nil)
	if err != nil {
		return err
	}
	pod, err := launcherpod.RenderProvisioning(vmi, settings, r.LauncherImage, facts)
	if err != nil {
		return fmt.Errorf("rendering the provisioning pod of VMI %s: %w", vmi.Name, err)
	}
	if err := r.requireHotplugTopology(ctx, vmi, pod); err != nil {
		return err
	}
	need, err := launcherpod.Need(vmi, settings)
	if err != nil {
		return fmt.Errorf("reckoning what the provisioning pod of VMI %s needs: %w", vmi.Name, err)
	}
	// An earlier attempt may have created the pod. A foreign one is an error.
	err = podcreation.Create(ctx, r.Client, r.Reader, pod, need)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing, err := versioned.Read[corev1.Pod](ctx, r.Reader, "the provisioning pod", client.ObjectKeyFromObject(pod))
	if existing != nil && !metav1.IsControlledBy(existing, vmi) {
		return fmt.Errorf("a pod %s exists that does not belong to VMI %s", pod.Name, vmi.Name)
	}
	return err
}
