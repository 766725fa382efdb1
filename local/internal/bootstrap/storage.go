package bootstrap

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"

	"drydock.dev/local/internal/render"
)

// ApplyStorage installs the driver, its classes and the snapshot API.
func (b *Cluster) ApplyStorage(ctx context.Context, definitions string) error {
	data, err := os.ReadFile(definitions)
	if err != nil {
		return fmt.Errorf("reading the definitions of the snapshot API: %w", err)
	}
	// The controller begins when the API exists: RBAC comes first.
	if err := b.applyAll(ctx, "the storage driver", render.Storage()); err != nil {
		return err
	}
	if err := b.applyAll(ctx, "the snapshot API", string(data)); err != nil {
		return err
	}
	// A CRD is served a moment after it is accepted.
	err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := b.applyAll(ctx, "the snapshot class", render.SnapshotClass())
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("waiting for the snapshot API: %w", err)
	}
	return nil
}

// AwaitStorage waits until every kubelet has the driver.
func (b *Cluster) AwaitStorage(ctx context.Context) error {
	for _, name := range b.layout.Nodes {
		named := fields.OneTermEqualSelector("metadata.name", name)
		lw := cache.NewListWatchFromClient(b.typed.StorageV1().RESTClient(), "csinodes", "", named)
		_, err := watchtools.UntilWithSync(ctx, lw, &storagev1.CSINode{}, nil, func(event watch.Event) (bool, error) {
			node, ok := event.Object.(*storagev1.CSINode)
			return ok && slices.ContainsFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
				return d.Name == render.StorageDriver
			}), nil
		})
		if err != nil {
			return fmt.Errorf("waiting for the storage driver on %s (see %s): %w", name, b.layout.NodeLog(name, "drydock-csi-node"), err)
		}
	}
	return nil
}
