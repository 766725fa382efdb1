package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/cdi"
	"drydock.dev/drydock/internal/controller/claimsize"
	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/controller/clone"
	"drydock.dev/drydock/internal/controller/commontypes"
	"drydock.dev/drydock/internal/controller/datavolume"
	"drydock.dev/drydock/internal/controller/evacuation"
	"drydock.dev/drydock/internal/controller/fairqueue"
	"drydock.dev/drydock/internal/controller/hotplug"
	"drydock.dev/drydock/internal/controller/kubevirt"
	"drydock.dev/drydock/internal/controller/maintenance"
	"drydock.dev/drydock/internal/controller/migration"
	"drydock.dev/drydock/internal/controller/replicaset"
	"drydock.dev/drydock/internal/controller/restore"
	"drydock.dev/drydock/internal/controller/rivals"
	"drydock.dev/drydock/internal/controller/schedulable"
	"drydock.dev/drydock/internal/controller/snapshot"
	"drydock.dev/drydock/internal/controller/vm"
	"drydock.dev/drydock/internal/controller/vmi"
	"drydock.dev/drydock/internal/controller/workloadupdate"
	"drydock.dev/drydock/internal/eventnote"
	"drydock.dev/drydock/internal/rules/clusterconfig"
)

// workers is the concurrency of each loop of VMs, VMIs, hotplugged volumes and DataVolumes. A step waits for a
// handful of API requests, so more workers than CPUs are right.
const workers = 16

// migrationWorkers is the concurrency of each loop of migrations and evacuations: about as many migrations run.
const migrationWorkers = 4

// snapshotWorkers is the concurrency of each loop of snapshots, restores, clones and maintenance pods. Each object
// needs a handful of requests now and then, for as long as the storage takes.
const snapshotWorkers = 4

// pace returns a loop's options. Failures are retried with backoff, at least every 30 seconds. Namespaces are served
// in turn.
func pace(workers int) controller.Options {
	return controller.Options{
		NewQueue:                fairqueue.New,
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, 30*time.Second),
	}
}

// loop watches objects of a kind and acts on them.
type loop struct {
	// of names the loop's objects in errors.
	of    string
	setup func() error
}

func register(ctx context.Context, mgr ctrl.Manager, o options) error {
	for _, index := range []func(context.Context, client.FieldIndexer) error{
		claimusers.Register, rivals.Register, snapshot.Register, restore.Register, clone.Register,
	} {
		if err := index(ctx, mgr.GetFieldIndexer()); err != nil {
			return err
		}
	}
	all, err := loops(ctx, mgr, o)
	if err != nil {
		return err
	}
	for _, l := range all {
		if err := l.setup(); err != nil {
			return fmt.Errorf("adding the loop of %s: %w", l.of, err)
		}
	}
	return nil
}

func loops(ctx context.Context, mgr ctrl.Manager, o options) ([]loop, error) {
	cached, reader := mgr.GetClient(), mgr.GetAPIReader()
	theOne := kubeVirt(cached, o.namespace)
	settings := settings(theOne)
	recorder := func(name string) events.EventRecorder { return eventnote.Fitting(mgr.GetEventRecorder(name)) }
	direct, err := directClient(mgr)
	if err != nil {
		return nil, err
	}
	vmis := &vmi.Reconciler{
		Client: cached, Reader: reader, Recorder: recorder("virtualmachine-controller"),
		Settings: settings, LauncherImage: o.launcherImage, Now: o.now,
	}
	plugs := &hotplug.Reconciler{
		Client: cached, Reader: reader, Recorder: recorder("virtualmachine-controller"),
		Settings: settings, LauncherImage: o.launcherImage, MaxAttachmentPods: o.maxAttachmentPods, Now: o.now,
	}
	moves := &migration.Reconciler{
		Client: cached, Reader: reader, Recorder: recorder("virtualmachineinstance-migration-controller"),
		Settings: settings, Render: vmis.RenderTarget, Destinations: vmis.Destinations, Now: o.now,
	}
	evacuations := &evacuation.Reconciler{
		Client: cached, Reader: reader, Recorder: recorder("evacuation-controller"), Settings: settings, Now: o.now,
	}
	updates := &workloadupdate.Reconciler{
		Client: cached, Recorder: recorder("workload-update-controller"), KubeVirt: theOne, Image: o.launcherImage, Now: o.now,
	}
	vms := &vm.Reconciler{
		Client: cached, Reader: reader, Recorder: recorder("virtualmachine-controller"), Settings: settings, Now: o.now,
	}
	sets := &replicaset.Reconciler{Client: cached, Recorder: recorder("virtualmachinereplicaset-controller"), Now: o.now}
	volumes := &datavolume.Reconciler{
		Client: cached, Reader: reader, Recorder: recorder("datavolume-controller"),
		Settings: settings, ImporterImage: o.importerImage, Namespace: o.namespace,
		DeniedNetworks: o.deniedNetworks, AllowedNetworks: o.allowedNetworks,
		Progress: datavolume.Ask, Now: o.now,
	}
	definitions := &cdi.Reconciler{Client: cached, Direct: direct, Namespace: o.namespace, Now: o.now}
	return []loop{
		{"VirtualMachineInstances", func() error { return vmis.SetupWithManager(mgr, pace(workers)) }},
		{"claims with a selected node", func() error { return (&vmi.SelectedNodes{Reconciler: vmis}).SetupWithManager(mgr, pace(1)) }},
		{"VirtualMachineInstanceMigrations", func() error { return moves.SetupWithManager(ctx, mgr, pace(migrationWorkers)) }},
		{"evacuations", func() error { return evacuations.SetupWithManager(mgr, pace(migrationWorkers)) }},
		{"disruption budgets of guests", func() error { return (&evacuation.Budgets{Client: cached, Now: o.now}).SetupWithManager(mgr, pace(1)) }},
		{"outdated launcher pods", func() error { return updates.SetupWithManager(mgr, pace(1)) }},
		{"hotplugged volumes", func() error { return plugs.SetupWithManager(ctx, mgr, pace(workers)) }},
		{"claims that grow", func() error { return (&claimsize.Reconciler{Client: cached}).SetupWithManager(mgr, pace(1)) }},
		{"VirtualMachines", func() error { return vms.SetupWithManager(ctx, mgr, pace(workers)) }},
		{"VirtualMachineInstanceReplicaSets", func() error { return sets.SetupWithManager(mgr, pace(1)) }},
		{"VirtualMachineSnapshots", func() error { return setUpSnapshots(mgr, o, pace(snapshotWorkers)) }},
		{"VirtualMachineClones", func() error { return newClones(mgr, o).SetupWithManager(mgr, pace(snapshotWorkers)) }},
		{"maintenance pods", func() error { return newMaintenance(mgr, o, vmis).SetupWithManager(ctx, mgr, pace(snapshotWorkers)) }},
		{"VirtualMachineRestores", func() error { return newRestores(mgr, o).SetupWithManager(mgr, pace(snapshotWorkers)) }},
		{"DataVolumes", func() error { return volumes.SetupWithManager(mgr, pace(workers)) }},
		{"claims that take uploads", func() error { return (&datavolume.UploadClaims{Reconciler: volumes}).SetupWithManager(mgr, pace(1)) }},
		{"DataSources", func() error { return (&datavolume.DataSources{Reconciler: volumes}).SetupWithManager(mgr, pace(1)) }},
		{"CDI's definitions", func() error { return definitions.SetupWithManager(mgr) }},
		{"common instance types", func() error { return newCommonTypes(mgr, theOne).SetupWithManager(mgr, pace(1)) }},
		{"nodes that virt-handler leaves", func() error { return newSchedulable(mgr, o).SetupWithManager(mgr, pace(1)) }},
		{"the KubeVirt object", func() error { return newInstallation(mgr, o).SetupWithManager(mgr) }},
	}, nil
}

func setUpSnapshots(mgr ctrl.Manager, o options, pace controller.Options) error {
	guests := o.guests
	if guests == nil {
		var err error
		if guests, err = snapshot.NewGuests(mgr.GetConfig()); err != nil {
			return err
		}
	}
	cuts := &snapshot.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Guests: guests,
		Recorder: eventnote.Fitting(mgr.GetEventRecorder("virtualmachinesnapshot-controller")), Now: o.now,
	}
	return cuts.SetupWithManager(mgr, pace)
}

func newInstallation(mgr ctrl.Manager, o options) *kubevirt.Reconciler {
	return &kubevirt.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), KubeVirt: kubeVirt(mgr.GetClient(), o.namespace), Namespace: o.namespace,
		Types: applyconfigurations.NewTypeConverter(mgr.GetScheme()),
	}
}

func newClones(mgr ctrl.Manager, o options) *clone.Reconciler {
	return &clone.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(),
		Recorder: eventnote.Fitting(mgr.GetEventRecorder("virtualmachineclone-controller")), Now: o.now,
	}
}

func newRestores(mgr ctrl.Manager, o options) *restore.Reconciler {
	return &restore.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(),
		Recorder: eventnote.Fitting(mgr.GetEventRecorder("virtualmachinerestore-controller")), Now: o.now,
	}
}

func newMaintenance(mgr ctrl.Manager, o options, disks *vmi.Reconciler) *maintenance.Reconciler {
	return &maintenance.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(),
		Recorder: eventnote.Fitting(mgr.GetEventRecorder("maintenance-controller")), Now: o.now,
		Settings: disks.Settings, Disks: disks,
	}
}

func newSchedulable(mgr ctrl.Manager, o options) *schedulable.Reconciler {
	return &schedulable.Reconciler{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Namespace: o.namespace}
}

func newCommonTypes(mgr ctrl.Manager, theOne func(context.Context) (*v1.KubeVirt, error)) *commontypes.Reconciler {
	return &commontypes.Reconciler{
		Client: mgr.GetClient(), KubeVirt: theOne, Recorder: eventnote.Fitting(mgr.GetEventRecorder("common-instancetypes-controller")),
	}
}

func directClient(mgr ctrl.Manager) (client.Client, error) {
	c, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return c, nil
}

// kubeVirt returns a function that reads the effective KubeVirt object from the cache, nil for none. The object
// belongs to the cache and must not be changed.
func kubeVirt(c client.Reader, namespace string) func(context.Context) (*v1.KubeVirt, error) {
	return func(ctx context.Context) (*v1.KubeVirt, error) {
		var all v1.KubeVirtList
		if err := c.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("reading the KubeVirt object: %w", err)
		}
		return clusterconfig.TheOne(all.Items, namespace), nil
	}
}

// settings returns a function that reads the KubeVirt object on each call, so that a change applies to the next
// launcher pod.
func settings(theOne func(context.Context) (*v1.KubeVirt, error)) func(context.Context) (clusterconfig.Settings, error) {
	return func(ctx context.Context) (clusterconfig.Settings, error) {
		kv, err := theOne(ctx)
		if err != nil {
			return clusterconfig.Settings{}, err
		}
		return clusterconfig.FromKubeVirt(kv), nil
	}
}
