package api

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/migration/evacuation"
	"drydock.dev/drydock/internal/rules/object/objectevent"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// An eviction is judged so often after conflicts on the VMI. Clients retry evictions anyway.
const markAttempts = 4

// evictions answers evictions of launcher pods. cluster must not be a cache: an answer from old data may stop a
// guest.
type evictions struct {
	cluster  client.Client
	settings *clusterconfig.Current
}

func addEvictions(add adder, cluster client.Client, settings *clusterconfig.Current) {
	e := &evictions{cluster: cluster, settings: settings}
	handler, err := admission.Deferring(e.judge)
	add(validateEviction, handler, err)
}

// judge returns why an eviction has to wait, "" if it is allowed. An error means that the pod could not be judged. A
// launcher pod is still protected by its disruption budget.
func (e *evictions) judge(ctx context.Context, r admission.Request[policyv1.Eviction]) (wait string, err error) {
	pod := types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
	for range markAttempts {
		eviction, err := e.observe(ctx, pod)
		if err != nil {
			return "", err
		}
		answer := evacuation.Judge(eviction)
		if !answer.Mark || r.DryRun || dryRun(r.New) {
			return answer.Message, nil
		}
		marked, err := e.mark(ctx, eviction.VMI)
		if err != nil {
			return objectevent.Fit(err.Error()), nil
		}
		if marked {
			return answer.Message, nil
		}
	}
	return fmt.Sprintf("the VMI of pod %s changes faster than it can be marked for its evacuation", pod.Name), nil
}

// The sender may request a dry run only in the delete options, which the admission request does not show.
func dryRun(e *policyv1.Eviction) bool {
	return e != nil && e.DeleteOptions != nil && len(e.DeleteOptions.DryRun) > 0
}

func (e *evictions) observe(ctx context.Context, key types.NamespacedName) (evacuation.Eviction, error) {
	out := evacuation.Eviction{Cluster: e.settings.Get().EvictionStrategy}
	pod := &corev1.Pod{}
	if err := e.cluster.Get(ctx, key, pod); err != nil {
		return out, ignoreNotFound(err, "pod", key)
	}
	out.Pod = pod
	of := types.NamespacedName{Namespace: key.Namespace, Name: launcherpod.VMIOf(pod)}
	if len(validation.IsDNS1123Subdomain(of.Name)) > 0 {
		// The pod names no VMI, or an invalid name: users write pods.
		return out, nil
	}
	vmi := &v1.VirtualMachineInstance{}
	if err := e.cluster.Get(ctx, of, vmi); err != nil {
		return out, ignoreNotFound(err, "VMI", of)
	}
	out.VMI = vmi
	if migration.HeldByDisks(vmi) {
		vm, owner := &v1.VirtualMachine{}, client.ObjectKeyFromObject(vmi)
		if err := e.cluster.Get(ctx, owner, vm); err != nil {
			return out, ignoreNotFound(err, "VM", owner)
		}
		out.VM = vm
	}
	return out, nil
}

func ignoreNotFound(err error, kind string, key types.NamespacedName) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("reading %s %s: %w", kind, key, err)
}

// mark reports false after a conflict.
func (e *evictions) mark(ctx context.Context, vmi *v1.VirtualMachineInstance) (marked bool, err error) {
	cordoned, err := e.cordoned(ctx, vmi.Status.NodeName)
	if err != nil {
		return false, err
	}
	patch := client.MergeFromWithOptions(vmi, client.MergeFromWithOptimisticLock{})
	switch err := e.cluster.Patch(ctx, evacuation.Mark(vmi, cordoned), patch); {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("marking VMI %s/%s for its evacuation from node %s: %w", vmi.Namespace, vmi.Name, vmi.Status.NodeName, err)
	}
	return true, nil
}

// cordoned reports whether a node takes no new pods. A node that does not exist takes none.
func (e *evictions) cordoned(ctx context.Context, name string) (bool, error) {
	node := &corev1.Node{}
	if err := e.cluster.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, fmt.Errorf("reading node %s: %w", name, err)
	}
	return node.Spec.Unschedulable, nil
}
