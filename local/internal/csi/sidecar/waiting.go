package sidecar

import (
	"fmt"
	"time"

	snapv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapinformers "github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// waitingSnapshots is the informer for snapshot-controller, which ignores a deleted snapshot while a claim is being
// created from it, and gets no event when that is done: snapshot and namespace would stay until the next resync.
type waitingSnapshots struct {
	snapinformers.VolumeSnapshotInformer
	informer *retold
}

// waiting repeats the update of a deleted snapshot to snapshot-controller when a claim from it changes its phase or
// is deleted.
func waiting(snapshots snapinformers.VolumeSnapshotInformer, claims coreinformers.PersistentVolumeClaimInformer) (snapinformers.VolumeSnapshotInformer, error) {
	w := waitingSnapshots{snapshots, &retold{SharedIndexInformer: snapshots.Informer()}}
	_, err := claims.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if was, is := before.(*corev1.PersistentVolumeClaim), after.(*corev1.PersistentVolumeClaim); was.Status.Phase != is.Status.Phase {
				w.retell(is)
			}
		},
		DeleteFunc: func(object any) {
			if last, is := object.(cache.DeletedFinalStateUnknown); is {
				object = last.Obj
			}
			w.retell(object.(*corev1.PersistentVolumeClaim))
		},
	})
	if err != nil {
		return nil, fmt.Errorf("following claims for their snapshots: %w", err)
	}
	return w, nil
}

func (w waitingSnapshots) Informer() cache.SharedIndexInformer { return w.informer }

func (w waitingSnapshots) retell(claim *corev1.PersistentVolumeClaim) {
	from := claim.Spec.DataSource
	if from == nil || from.Kind != "VolumeSnapshot" || from.APIGroup == nil || *from.APIGroup != snapv1.GroupName {
		return
	}
	snapshot, err := w.Lister().VolumeSnapshots(claim.Namespace).Get(from.Name)
	if err != nil || snapshot.DeletionTimestamp == nil {
		return // gone or not deleted
	}
	for _, handler := range w.informer.handlers {
		handler.OnUpdate(snapshot, snapshot)
	}
}

// retold remembers the handlers that were added before it runs.
type retold struct {
	cache.SharedIndexInformer
	handlers []cache.ResourceEventHandler
}

func (r *retold) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	r.handlers = append(r.handlers, handler)
	return r.SharedIndexInformer.AddEventHandlerWithResyncPeriod(handler, period)
}
