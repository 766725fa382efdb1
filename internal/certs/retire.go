package certs

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/object/backoff"
)

// retiredSecret had the key with which all virt-handlers served: each node could read it, and its authority's.
const retiredSecret = "kubevirt-virt-handler-server-certs"

// retirement removes an earlier version's Secret and the trust in its authority, once: a downgrade applies the Secret
// again.
type retirement struct {
	client client.Client
	reader client.Reader
}

// Start retries until the removal succeeds.
func (r *retirement) Start(ctx context.Context) error {
	backoff.Retry(ctx, backoff.Doubling(time.Second, time.Minute), func(ctx context.Context) bool {
		err := r.remove(ctx)
		if err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "what an earlier version has left is not removed yet")
		}
		return err == nil
	})
	return nil
}

// remove may be repeated, and run by several virt-apis.
func (r *retirement) remove(ctx context.Context) error {
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = clusterconfig.Namespace, retiredSecret
	if err := r.client.Delete(ctx, secret); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the Secret %s: %w", retiredSecret, err)
	}
	trusted := &corev1.ConfigMap{}
	name := types.NamespacedName{Namespace: clusterconfig.Namespace, Name: TrustConfigMap}
	if err := r.reader.Get(ctx, name, trusted); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("reading ConfigMap %s: %w", name, err))
	}
	if _, there := trusted.Data[trustKey(retiredSecret)]; !there {
		return nil
	}
	delete(trusted.Data, trustKey(retiredSecret))
	if err := r.client.Update(ctx, trusted); err != nil {
		return fmt.Errorf("taking the authority of the Secret %s out of ConfigMap %s: %w", retiredSecret, name, err)
	}
	return nil
}
