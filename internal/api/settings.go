package api

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"drydock.dev/drydock/internal/rules/clusterconfig"
)

// settingsWatcher keeps the settings those of the KubeVirt object.
type settingsWatcher struct {
	cache    cache.Cache
	settings *clusterconfig.Current
}

// Start watches until ctx ends.
func (f *settingsWatcher) Start(ctx context.Context) error {
	informer, err := f.cache.GetInformer(ctx, &v1.KubeVirt{})
	if err != nil {
		return fmt.Errorf("watching the KubeVirt object: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    f.set,
		UpdateFunc: func(_, obj any) { f.set(obj) },
		DeleteFunc: func(any) { f.settings.Set(nil) },
	})
	if err != nil {
		return fmt.Errorf("watching the KubeVirt object: %w", err)
	}
	<-ctx.Done()
	return nil
}

func (f *settingsWatcher) set(obj any) {
	if kv, ok := obj.(*v1.KubeVirt); ok {
		f.settings.Set(kv)
	}
}
