package controller

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/contracts/logline"
	"drydock.dev/drydock/internal/logs"
)

// subject is the VM or the VMI that a loop's lines are about, also those of controller-runtime. Its zero value is none.
type subject struct {
	// controller is the loop's name in controller-runtime, key that of the object in a line.
	controller, key string
	find            func(ctx context.Context, cache client.Reader, key types.NamespacedName) logline.Object
}

// logger returns nil, for controller-runtime's own, without a subject. A reconciliation gets a logger before it reads its
// object, so the object is looked up in the cache, and only for a line that is written. An object that is gone has no UID.
func (s subject) logger(log logr.Logger, cache client.Reader) func(*reconcile.Request) logr.Logger {
	if s.find == nil {
		return nil
	}
	base := log.WithValues("controller", s.controller)
	return func(req *reconcile.Request) logr.Logger {
		if req == nil {
			return base
		}
		key := req.NamespacedName
		return logs.Found(base.WithValues("namespace", key.Namespace, "name", key.Name), s.key, func() logline.Object {
			return s.find(context.Background(), cache, key)
		})
	}
}

func itsVMI(ctx context.Context, cache client.Reader, key types.NamespacedName) logline.Object {
	return identity(ctx, cache, key, &v1.VirtualMachineInstance{})
}

func itsVM(ctx context.Context, cache client.Reader, key types.NamespacedName) logline.Object {
	return identity(ctx, cache, key, &v1.VirtualMachine{})
}

func vmiOfMigration(ctx context.Context, cache client.Reader, key types.NamespacedName) logline.Object {
	m := &v1.VirtualMachineInstanceMigration{}
	if err := cache.Get(ctx, key, m); err != nil {
		return logline.Object{Namespace: key.Namespace}
	}
	return itsVMI(ctx, cache, types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.VMIName})
}

func identity(ctx context.Context, cache client.Reader, key types.NamespacedName, object client.Object) logline.Object {
	// Without the object, the line has the rest.
	_ = cache.Get(ctx, key, object)
	return logline.Object{Namespace: key.Namespace, Name: key.Name, UID: string(object.GetUID())}
}
