package cdi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/contracts/version"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// Reconciler maintains the definitions, the CDIConfig, and the status of CDI objects. All fields are required.
type Reconciler struct {
	// Client reads from the cache, Direct from the API server.
	Client, Direct client.Client
	// Namespace is Drydock's own.
	Namespace string
	Now       func() time.Time
}

// trustEvery is the interval of reading the upload proxy's authorities: a new one is published long before it is needed.
// untilTrusted is the interval while there is none.
const (
	trustEvery   = 10 * time.Minute
	untilTrusted = 5 * time.Second
)

// SetupWithManager registers the loop.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	theOne := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: datavolume.ConfigName}}}
	})
	ofCDI := predicate.NewPredicateFuncs(func(object client.Object) bool {
		return strings.HasSuffix(object.GetName(), "."+cdiv1.SchemeGroupVersion.Group)
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("cdi").
		Watches(&cdiv1.CDIConfig{}, theOne).
		Watches(&cdiv1.CDI{}, theOne).
		WatchesMetadata(Definition(), theOne, builder.WithPredicates(ofCDI)).
		Watches(&appsv1.Deployment{}, theOne, builder.WithPredicates(Decisive())).
		Complete(r)
}

// Reconcile brings CDI's definitions, the CDIConfig and the CDI objects up to date, unless CDI is installed.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	installed, err := Installed(ctx, r.Client, r.Direct)
	if err != nil || installed != "" {
		return ctrl.Result{}, err
	}
	if err := Install(ctx, r.Direct); err != nil {
		return ctrl.Result{}, err
	}
	authorities, err := r.authorities(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	again := trustEvery
	if authorities == nil {
		again = untilTrusted
	}
	var objects cdiv1.CDIList
	if err := r.Client.List(ctx, &objects); err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the CDI objects: %w", err)
	}
	plan := datavolume.PlanInstallation(objects.Items, version.Version, r.Now())
	if err := r.config(ctx, authorities, plan.Config); err != nil {
		return ctrl.Result{}, err
	}
	for _, to := range plan.Changed {
		from := &objects.Items[slices.IndexFunc(objects.Items, func(o cdiv1.CDI) bool { return o.Name == to.Name })]
		if err := versioned.PatchStatus(ctx, r.Client, "patching the status of the CDI object", from, to); err != nil {
			return ctrl.Result{RequeueAfter: again}, err
		}
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// authorities returns the authorities of the upload proxy's certificate, nil while none is published.
func (r *Reconciler) authorities(ctx context.Context) (*string, error) {
	var published corev1.ConfigMap
	key := client.ObjectKey{Namespace: r.Namespace, Name: certs.TrustConfigMap}
	if err := r.Direct.Get(ctx, key, &published); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the upload proxy's authorities in ConfigMap %s: %w", key, err)
	}
	if pem := published.Data[certs.UploadProxyTrust()]; pem != "" {
		return &pem, nil
	}
	return nil, nil
}

// config maintains the CDIConfig, whose status tells clients the upload proxy. wanted is the spec, nil for no change.
func (r *Reconciler) config(ctx context.Context, authorities *string, wanted *cdiv1.CDIConfigSpec) error {
	var config cdiv1.CDIConfig
	err := r.Client.Get(ctx, client.ObjectKey{Name: datavolume.ConfigName}, &config)
	if apierrors.IsNotFound(err) {
		config = cdiv1.CDIConfig{ObjectMeta: metav1.ObjectMeta{Name: datavolume.ConfigName}}
		if wanted != nil {
			config.Spec = *wanted.DeepCopy()
		}
		err = r.Client.Create(ctx, &config)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("keeping the CDIConfig %s: %w", datavolume.ConfigName, err)
	}
	if wanted != nil && !equality.Semantic.DeepEqual(config.Spec, *wanted) {
		to := config.DeepCopy()
		to.Spec = *wanted.DeepCopy()
		written, err := versioned.Write(ctx, r.Client, "bringing the CDI object's configuration into the CDIConfig", &config, to)
		if err != nil || written == nil {
			return err
		}
		config = *written
	}
	to := config.DeepCopy()
	to.Status = datavolume.ConfigStatus(&config)
	if authorities != nil {
		to.Status.UploadProxyCA = authorities
	}
	if equality.Semantic.DeepEqual(config.Status, to.Status) {
		return nil
	}
	return versioned.PatchStatus(ctx, r.Client, "patching the status of the CDIConfig", &config, to)
}
