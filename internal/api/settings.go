package api

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"drydock.dev/drydock/internal/rules/clusterconfig"
)

// settingsWatcher keeps the settings those of the KubeVirt object that counts.
type settingsWatcher struct {
	cache    cache.Cache
	settings *clusterconfig.Watched
}

// Start watches until ctx ends.
func (f *settingsWatcher) Start(ctx context.Context) error {
	informer, err := f.cache.GetInformer(ctx, &v1.KubeVirt{})
	if err != nil {
		return fmt.Errorf("watching the KubeVirt object: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    f.seen,
		UpdateFunc: func(_, obj any) { f.seen(obj) },
		DeleteFunc: f.gone,
	})
	if err != nil {
		return fmt.Errorf("watching the KubeVirt object: %w", err)
	}
	<-ctx.Done()
	return nil
}

func (f *settingsWatcher) seen(obj any) {
	if kv, ok := obj.(*v1.KubeVirt); ok {
		f.settings.Seen(kv)
	}
}

func (f *settingsWatcher) gone(obj any) {
	if missed, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = missed.Obj
	}
	if kv, ok := obj.(*v1.KubeVirt); ok {
		f.settings.Gone(kv)
	}
}
