package datavolume

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/cdi"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// snapshotEvery is how often the snapshot of a DataSource is read: clusters without snapshots can't watch them.
const snapshotEvery = 30 * time.Second

// DataSources is the loop that reports in the status of DataSources whether they can be used.
type DataSources struct{ *Reconciler }

// SetupWithManager registers the loop.
func (d *DataSources) SetupWithManager(mgr ctrl.Manager, pace controller.Options) error {
	leads := handler.EnqueueRequestsFromMapFunc(d.referring)
	return ctrl.NewControllerManagedBy(mgr).
		Named("datasource").
		For(&cdiv1.DataSource{}).
		Watches(&corev1.PersistentVolumeClaim{}, leads).
		Watches(&cdiv1.DataVolume{}, leads).
		WithOptions(pace).
		Complete(d)
}

// The DataVolume that fills the claim has its name.
func (d *DataSources) referring(ctx context.Context, object client.Object) []reconcile.Request {
	var list cdiv1.DataSourceList
	if err := d.Client.List(ctx, &list, client.InNamespace(object.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the DataSources")
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if pvc := list.Items[i].Spec.Source.PVC; pvc != nil && pvc.Name == object.GetName() {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}

// Reconcile writes one DataSource's status.
func (d *DataSources) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	installed, err := cdi.Installed(ctx, d.Client, d.Reader)
	if err != nil || installed != "" {
		return ctrl.Result{}, err
	}
	var source cdiv1.DataSource
	if err := d.Client.Get(ctx, req.NamespacedName, &source); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	reference := datavolume.ResolveReference(&source, source.Namespace, source.Name)
	var observed datavolume.Source
	var result ctrl.Result
	switch {
	case reference.Source == nil:
	case reference.Source.PVC != nil:
		err = d.observeSourceClaim(ctx, client.ObjectKey{Namespace: source.Namespace, Name: reference.Source.PVC.Name}, &observed)
	default:
		result.RequeueAfter = snapshotEvery
		_, err = d.observeSnapshot(ctx, client.ObjectKey{Namespace: source.Namespace, Name: reference.Source.Snapshot.Name}, &observed)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	to := source.DeepCopy()
	to.Status = datavolume.DataSourceStatus(&source, reference, observed, d.Now())
	if equality.Semantic.DeepEqual(source.Status, to.Status) {
		return result, nil
	}
	if err := versioned.Patch(ctx, d.Client, "patching the DataSource", &source, to); err != nil {
		return ctrl.Result{}, err
	}
	return result, nil
}
