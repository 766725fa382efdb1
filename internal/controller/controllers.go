package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/clusterconfig"
	"drydock.dev/drydock/internal/controller/cdi"
	"drydock.dev/drydock/internal/controller/claimsize"
	"drydock.dev/drydock/internal/controller/datavolume"
	"drydock.dev/drydock/internal/controller/hotplug"
	"drydock.dev/drydock/internal/controller/kubevirt"
	"drydock.dev/drydock/internal/controller/replicaset"
	"drydock.dev/drydock/internal/controller/vm"
	"drydock.dev/drydock/internal/controller/vmi"
	"drydock.dev/drydock/internal/eventnote"
)

// workers is how many VMs, and how many VMIs, are worked on at once. One step is
// a handful of requests that wait on the API server, so more than the CPUs is
// right.
const workers = 16

// pace is for a loop with so many workers. What fails is tried again soon, and
// never less than twice a minute.
func pace(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, 30*time.Second),
	}
}

// register adds every loop to the manager.
func register(ctx context.Context, mgr ctrl.Manager, o options) error {
	vmiLoop := &vmi.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: eventnote.Fitting(mgr.GetEventRecorder("virtualmachine-controller")),
		Settings: settings(mgr.GetClient(), o.namespace), LauncherImage: o.launcherImage, Now: o.now,
	}
	if err := vmiLoop.SetupWithManager(ctx, mgr, pace(workers)); err != nil {
		return fmt.Errorf("adding the loop of VirtualMachineInstances: %w", err)
	}
	if err := (&vmi.SelectedNodes{Reconciler: vmiLoop}).SetupWithManager(mgr, pace(1)); err != nil {
		return fmt.Errorf("adding the loop of claims with a selected node: %w", err)
	}
	plugLoop := &hotplug.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: eventnote.Fitting(mgr.GetEventRecorder("virtualmachine-controller")),
		Settings: settings(mgr.GetClient(), o.namespace), LauncherImage: o.launcherImage, MaxHolders: o.maxHolders, Now: o.now,
	}
	if err := plugLoop.SetupWithManager(ctx, mgr, pace(workers)); err != nil {
		return fmt.Errorf("adding the loop of hotplugged volumes: %w", err)
	}
	sizeLoop := &claimsize.Reconciler{Client: mgr.GetClient()}
	if err := sizeLoop.SetupWithManager(ctx, mgr, pace(1)); err != nil {
		return fmt.Errorf("adding the loop of claims that grow: %w", err)
	}
	vmLoop := &vm.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: eventnote.Fitting(mgr.GetEventRecorder("virtualmachine-controller")),
		Now: o.now,
	}
	if err := vmLoop.SetupWithManager(ctx, mgr, pace(workers)); err != nil {
		return fmt.Errorf("adding the loop of VirtualMachines: %w", err)
	}
	setLoop := &replicaset.Reconciler{
		Client: mgr.GetClient(), Recorder: eventnote.Fitting(mgr.GetEventRecorder("virtualmachinereplicaset-controller")),
		Now: o.now,
	}
	if err := setLoop.SetupWithManager(mgr, pace(1)); err != nil {
		return fmt.Errorf("adding the loop of VirtualMachineInstanceReplicaSets: %w", err)
	}
	volumeLoop := &datavolume.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: eventnote.Fitting(mgr.GetEventRecorder("datavolume-controller")),
		Settings: settings(mgr.GetClient(), o.namespace), ImporterImage: o.importerImage, Namespace: o.namespace,
		DeniedNetworks: o.deniedNetworks, AllowedNetworks: o.allowedNetworks,
		Progress: datavolume.Ask, Now: o.now,
	}
	if err := volumeLoop.SetupWithManager(mgr, pace(workers)); err != nil {
		return fmt.Errorf("adding the loop of DataVolumes: %w", err)
	}
	if err := (&datavolume.UploadClaims{Reconciler: volumeLoop}).SetupWithManager(mgr, pace(1)); err != nil {
		return fmt.Errorf("adding the loop of claims that take uploads: %w", err)
	}
	if err := (&datavolume.DataSources{Reconciler: volumeLoop}).SetupWithManager(mgr, pace(1)); err != nil {
		return fmt.Errorf("adding the loop of DataSources: %w", err)
	}
	direct, err := directClient(mgr)
	if err != nil {
		return err
	}
	if err := (&cdi.Reconciler{Client: mgr.GetClient(), Direct: direct, Namespace: o.namespace}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("adding the loop of CDI's definitions: %w", err)
	}
	kubevirtLoop := &kubevirt.Reconciler{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Namespace: o.namespace}
	if err := kubevirtLoop.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("adding the loop of the KubeVirt object: %w", err)
	}
	return nil
}

// directClient asks the API server and no cache.
func directClient(mgr ctrl.Manager) (client.Client, error) {
	c, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return c, nil
}

// settings reads the KubeVirt object from the cache whenever it is asked, so
// that a change is in force with the next launcher pod.
func settings(c client.Reader, namespace string) func(context.Context) (clusterconfig.Settings, error) {
	key := types.NamespacedName{Namespace: namespace, Name: clusterconfig.Name}
	return func(ctx context.Context) (clusterconfig.Settings, error) {
		var kv v1.KubeVirt
		err := c.Get(ctx, key, &kv)
		if apierrors.IsNotFound(err) {
			return clusterconfig.FromKubeVirt(nil), nil
		}
		if err != nil {
			return clusterconfig.Settings{}, fmt.Errorf("reading the KubeVirt object %s: %w", key, err)
		}
		return clusterconfig.FromKubeVirt(&kv), nil
	}
}
