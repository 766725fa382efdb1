package process

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// Follower follows the effective KubeVirt object.
type Follower struct {
	Cache    cache.Cache
	Settings *clusterconfig.Watched
}

// NeedLeaderElection returns false, since every process follows, whichever leads.
func (f *Follower) NeedLeaderElection() bool { return false }

// Start watches until ctx ends.
func (f *Follower) Start(ctx context.Context) error {
	informer, err := f.Cache.GetInformer(ctx, &v1.KubeVirt{})
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

func (f *Follower) seen(obj any) {
	if kv, ok := obj.(*v1.KubeVirt); ok {
		f.Settings.Seen(kv)
	}
}

func (f *Follower) gone(obj any) {
	if missed, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = missed.Obj
	}
	if kv, ok := obj.(*v1.KubeVirt); ok {
		f.Settings.Gone(kv)
	}
}
