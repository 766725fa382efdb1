package kubevirt

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/cluster/components"
)

// settled is a state in which an object needed no change, or could not be changed.
type settled struct {
	object, kubeVirt         types.UID
	generation, kvGeneration int64
	refused                  string
}

// configure returns the refusals. kv may be nil. Each workload takes one request, so that a process that ends
// here leaves nothing half done.
func (r *Reconciler) configure(ctx context.Context, kv *v1.KubeVirt) (refused []string, err error) {
	for _, name := range deployments {
		var cached, live appsv1.Deployment
		texts, err := r.configureOne(ctx, name, &cached, &live, kv, func() (*unstructured.Unstructured, error) {
			return components.Deployment(&live, kv, r.Types)
		})
		if err != nil {
			return nil, err
		}
		refused = append(refused, texts...)
	}
	for _, name := range daemonSets {
		var cached, live appsv1.DaemonSet
		texts, err := r.configureOne(ctx, name, &cached, &live, kv, func() (*unstructured.Unstructured, error) {
			return components.DaemonSet(&live, kv, r.Types)
		})
		if err != nil {
			return nil, err
		}
		refused = append(refused, texts...)
	}
	texts, err := r.patchUserRoles(ctx, kv)
	if err != nil {
		return nil, err
	}
	refused = append(refused, texts...)
	if _, wrong := clusterconfig.CertificatesOf(kv); len(wrong) > 0 {
		refused = append(refused, fmt.Sprintf("certificates have the default lifetimes: %v", wrong.ToAggregate()))
	}
	return refused, nil
}

// configureOne configures one workload. The cache, which has no managed fields, shows whether it may need a change.
func (r *Reconciler) configureOne(ctx context.Context, name string, cached, live client.Object, kv *v1.KubeVirt,
	plan func() (*unstructured.Unstructured, error),
) (refused []string, err error) {
	exists, err := r.read(ctx, name, cached)
	if err != nil || !exists {
		return nil, err
	}
	if before, known := r.settled[name]; known && before == before.at(cached, kv) {
		return before.said(), nil
	}
	if exists, err := versioned.Find(ctx, r.Reader, "the workload", client.ObjectKeyFromObject(cached), live); err != nil || !exists {
		return nil, err
	}
	now := settled{}.at(live, kv)
	apply, err := plan()
	if err != nil {
		now.refused = fmt.Sprintf("%s: %v", name, err)
	}
	if apply != nil {
		err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(apply), client.FieldOwner(components.Manager), client.ForceOwnership)
		if err == nil || versioned.Overtaken(err) {
			// The workload has changed, which enqueues it.
			return nil, nil
		}
		if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
			return nil, fmt.Errorf("applying what the KubeVirt object says of %s: %w", name, err)
		}
		now.refused = fmt.Sprintf("%s: %v", name, err)
	}
	r.settled[name] = now
	return now.said(), nil
}

func (s settled) at(object client.Object, kv *v1.KubeVirt) settled {
	s.object, s.generation = object.GetUID(), object.GetGeneration()
	s.kubeVirt, s.kvGeneration = "", 0
	if kv != nil {
		s.kubeVirt, s.kvGeneration = kv.UID, kv.Generation
	}
	return s
}

func (s settled) said() []string {
	if s.refused == "" {
		return nil
	}
	return []string{s.refused}
}
