package controller

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	migrationsv1alpha1 "kubevirt.io/api/migrations/v1alpha1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/controller/cdi"
	"drydock.dev/drydock/internal/controller/kubevirt"
	"drydock.dev/drydock/internal/controller/lenient"
	"drydock.dev/drydock/internal/controller/snapshot"
	"drydock.dev/drydock/internal/metricsserver"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/process"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/cluster/components"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

const leaseName = "virt-controller"

// These are Kubernetes' own: a leader that is cut off stops before another starts.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1.AddToScheme(scheme))
	utilruntime.Must(instancetypev1.AddToScheme(scheme))
	utilruntime.Must(migrationsv1alpha1.AddToScheme(scheme))
	utilruntime.Must(snapshotv1.AddToScheme(scheme))
	utilruntime.Must(clonev1.AddToScheme(scheme))
	utilruntime.Must(cdiv1.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	return scheme
}

// newManager returns the manager that runs the loops while this process leads. The API server limits its requests: a
// client-side limit, which the KubeVirt object can set (pace), would delay a hundred VMs that start at once. Renewals of
// the lease are never limited.
func newManager(server *rest.Config, o options, pace *process.Pace) (ctrl.Manager, error) {
	server = rest.CopyConfig(server)
	server.QPS = -1
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, o.namespace, leaseName,
		resourcelock.ResourceLockConfig{Identity: o.identity}, server, renewDeadline+o.leaseSlack)
	if err != nil {
		return nil, fmt.Errorf("preparing the lease %s/%s: %w", o.namespace, leaseName, err)
	}
	server.RateLimiter = pace
	pagedlist.Bound(server)
	scheme := newScheme()
	caches, err := cacheOptions(server, scheme, o)
	if err != nil {
		return nil, err
	}
	mapper := apiutil.NewDynamicRESTMapper
	if o.mapper != nil {
		mapper = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return o.mapper, nil }
	}
	// Some kinds are read too rarely to be worth the memory of a cache.
	uncached := []client.Object{&appsv1.ControllerRevision{}}
	mgr, err := ctrl.NewManager(server, ctrl.Options{
		MapperProvider:                      mapper,
		Scheme:                              scheme,
		Cache:                               caches,
		Controller:                          loopDefaults(o),
		Client:                              client.Options{Cache: &client.CacheOptions{DisableFor: uncached}},
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       new(leaseDuration + o.leaseSlack),
		RenewDeadline:                       new(renewDeadline + o.leaseSlack),
		RetryPeriod:                         new(retryPeriod),
		Metrics:                             ctrlserver.Options{BindAddress: metricsserver.None},
		PprofBindAddress:                    o.pprofAddr,
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	settings := &clusterconfig.Current{}
	serving := o.serving
	serving.Restrict = func(config *tls.Config) { settings.Get().TLS.Restrict(config) }
	serving.Ready = cached(mgr.GetCache())
	return mgr, errors.Join(metricsserver.Add(mgr, serving), mgr.Add(&process.Follower{Cache: mgr.GetCache(), Settings: &clusterconfig.Watched{
		Home: o.namespace, Current: settings, Changed: func(s clusterconfig.Settings) {
			process.SetVerbosity(s.Verbosity.Controller)
			pace.Set(s.Rates.Controller)
		},
	}}))
}

// cached succeeds when the caches are filled: a process is ready as soon as it could lead.
func cached(caches cache.Cache) healthz.Checker {
	return func(req *http.Request) error {
		if !caches.WaitForCacheSync(req.Context()) {
			return fmt.Errorf("the caches are not filled yet")
		}
		return nil
	}
}

// noTimeout lets a loop wait for its kinds without end. Otherwise a kind that can't be listed, for example after the
// deletion of its definition, would end the process after two minutes. Readiness reports it.
const noTimeout = 365 * 24 * time.Hour

// The queue is client-go's: controller-runtime's can block forever at shutdown, and the process would hold the lease
// (decision 178).
func loopDefaults(o options) config.Controller {
	return config.Controller{SkipNameValidation: &o.several, UsePriorityQueue: new(false), CacheSyncTimeout: noTimeout}
}

// cacheOptions limits the caches to the objects and fields that the loops read. Kinds that users write are decoded
// object by object.
func cacheOptions(server *rest.Config, scheme *runtime.Scheme, o options) (cache.Options, error) {
	newInformer, err := lenient.Informers(server, scheme, map[schema.GroupVersionKind]string{
		v1.VirtualMachineInstanceGroupVersionKind:                                      "virtualmachineinstances",
		v1.VirtualMachineGroupVersionKind:                                              "virtualmachines",
		v1.VirtualMachineInstanceReplicaSetGroupVersionKind:                            "virtualmachineinstancereplicasets",
		v1.VirtualMachineInstanceMigrationGroupVersionKind:                             "virtualmachineinstancemigrations",
		snapshotv1.SchemeGroupVersion.WithKind("VirtualMachineSnapshot"):               "virtualmachinesnapshots",
		snapshotv1.SchemeGroupVersion.WithKind("VirtualMachineRestore"):                "virtualmachinerestores",
		clonev1.VirtualMachineCloneKind:                                                "virtualmachineclones",
		instancetypev1.SchemeGroupVersion.WithKind(instancetype.KindType):              "virtualmachineinstancetypes",
		instancetypev1.SchemeGroupVersion.WithKind(instancetype.KindClusterType):       "virtualmachineclusterinstancetypes",
		instancetypev1.SchemeGroupVersion.WithKind(instancetype.KindPreference):        "virtualmachinepreferences",
		instancetypev1.SchemeGroupVersion.WithKind(instancetype.KindClusterPreference): "virtualmachineclusterpreferences",
		cdiv1.SchemeGroupVersion.WithKind("DataVolume"):                                "datavolumes",
		cdiv1.SchemeGroupVersion.WithKind("DataSource"):                                "datasources",
		cdiv1.SchemeGroupVersion.WithKind("CDI"):                                       "cdis",
		cdiv1.SchemeGroupVersion.WithKind("CDIConfig"):                                 "cdiconfigs",
	})
	if err != nil {
		return cache.Options{}, err
	}
	own := map[string]cache.Config{o.namespace: {}}
	// CDI may be in any namespace.
	deployments := map[string]cache.Config{
		o.namespace:         {},
		cache.AllNamespaces: {FieldSelector: fields.OneTermEqualSelector("metadata.name", cdi.DeploymentName)},
	}
	return cache.Options{
		NewInformer:      newInformer,
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                   {Label: podsOfDrydock(), Transform: trimPod},
			&policyv1.PodDisruptionBudget{}: {Label: budgetsOfDrydock()},
			&corev1.Node{}:                  {Transform: trimNode},
			&appsv1.Deployment{}:            {Namespaces: deployments},
			cdi.Definition():                {Transform: nameAndLabels},
			snapshot.Content():              {Transform: nameAndLabels},
			kubevirt.UsersRole():            {Label: labels.SelectorFromSet(components.RoleLabels())},
			&appsv1.DaemonSet{}:             {Namespaces: own},
		},
	}, nil
}

// podsOfDrydock selects the pods that the loops make, and the maintenance pods, for which VMs are locked.
func podsOfDrydock() labels.Selector {
	ours, err := labels.NewRequirement(v1.AppLabel, selection.In, []string{
		layout.LauncherApp, layout.AttachmentApp, datavolume.WorkerAppLabel, layout.MaintenanceApp,
	})
	utilruntime.Must(err)
	return labels.NewSelector().Add(*ours)
}

func budgetsOfDrydock() labels.Selector {
	ours, err := labels.NewRequirement(v1.AppLabel, selection.In, []string{layout.LauncherApp, layout.AttachmentApp})
	utilruntime.Must(err)
	return labels.NewSelector().Add(*ours)
}

func nameAndLabels(object any) (any, error) {
	if definition, ok := object.(*metav1.PartialObjectMetadata); ok {
		definition.Annotations, definition.ManagedFields = nil, nil
	}
	return object, nil
}
