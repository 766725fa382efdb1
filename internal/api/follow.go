package api

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"drydock.dev/drydock/internal/rules/clusterconfig"
)

// follower keeps the settings those of the KubeVirt object.
type follower struct {
	cache    cache.Cache
	settings *clusterconfig.Current
}

// Start follows until ctx ends.
func (f *follower) Start(ctx context.Context) error {
	informer, err := f.cache.GetInformer(ctx, &v1.KubeVirt{})
	if err != nil {
		return fmt.Errorf("watching the KubeVirt object: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    f.seen,
		UpdateFunc: func(_, obj any) { f.seen(obj) },
		DeleteFunc: func(any) { f.settings.Set(nil) },
	})
	if err != nil {
		return fmt.Errorf("watching the KubeVirt object: %w", err)
	}
	<-ctx.Done()
	return nil
}

func (f *follower) seen(obj any) {
	if kv, ok := obj.(*v1.KubeVirt); ok {
		f.settings.Set(kv)
	}
}
