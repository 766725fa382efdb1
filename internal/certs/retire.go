package certs

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"drydock.dev/drydock/internal/rules/backoff"
	"drydock.dev/drydock/internal/rules/clusterconfig"
)

// retiredSecret held the one key that all virt-handlers served with, and their
// authority's, which each of them could read.
const retiredSecret = "kubevirt-virt-handler-server-certs"

// retirement removes what an earlier version has left: the Secret, and the trust
// in its authority. It does so once, at the start of the process: whoever goes
// back to that version applies the Secret again.
type retirement struct {
	client client.Client
	reader client.Reader
}

// Start removes it, however long the API server is away. It is a controller-runtime
// Runnable.
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

// remove is safe to be repeated, by every virt-api.
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
