package controller

import (
	"context"
	"fmt"

	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"drydock.dev/drydock/internal/contracts/logline"
	"drydock.dev/drydock/internal/controller/cdi"
	"drydock.dev/drydock/internal/controller/claimsize"
	"drydock.dev/drydock/internal/controller/clone"
	"drydock.dev/drydock/internal/controller/commontypes"
	"drydock.dev/drydock/internal/controller/datavolume"
	"drydock.dev/drydock/internal/controller/evacuation"
	"drydock.dev/drydock/internal/controller/hotplug"
	"drydock.dev/drydock/internal/controller/kubevirt"
	"drydock.dev/drydock/internal/controller/maintenance"
	"drydock.dev/drydock/internal/controller/migration"
	"drydock.dev/drydock/internal/controller/replicaset"
	"drydock.dev/drydock/internal/controller/restore"
	"drydock.dev/drydock/internal/controller/schedulable"
	"drydock.dev/drydock/internal/controller/snapshot"
	"drydock.dev/drydock/internal/controller/vm"
	"drydock.dev/drydock/internal/controller/vmi"
	"drydock.dev/drydock/internal/controller/workloadupdate"
	"drydock.dev/drydock/internal/eventnote"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

type parts struct {
	options
	mgr ctrl.Manager
	// cached reads from the cache, direct from the API server. reader is direct, without writes.
	cached, direct client.Client
	reader         client.Reader
	kubeVirt       func(context.Context) (*v1.KubeVirt, error)
	settings       func(context.Context) (clusterconfig.Settings, error)
	// vmis and volumes are reconcilers that also serve other loops.
	vmis    *vmi.Reconciler
	volumes *datavolume.Reconciler
}

func newParts(mgr ctrl.Manager, o options) (*parts, error) {
	direct, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	p := &parts{options: o, mgr: mgr, cached: mgr.GetClient(), direct: direct, reader: mgr.GetAPIReader()}
	p.kubeVirt = kubeVirt(p.cached, o.namespace)
	p.settings = settings(p.kubeVirt, o.logFormat)
	p.vmis = &vmi.Reconciler{
		Client: p.cached, Reader: p.reader, Recorder: p.recorder("virtualmachine-controller"),
		Settings: p.settings, LauncherImage: o.launcherImage, Now: o.now,
	}
	p.volumes = &datavolume.Reconciler{
		Client: p.cached, Reader: p.reader, Recorder: p.recorder("datavolume-controller"),
		Settings: p.settings, ImporterImage: o.importerImage, Namespace: o.namespace,
		DeniedNetworks: o.deniedNetworks, AllowedNetworks: o.allowedNetworks,
		Progress: datavolume.Ask, Now: o.now,
	}
	return p, nil
}

func (p *parts) recorder(name string) events.EventRecorder {
	return eventnote.Fitting(p.mgr.GetEventRecorder(name))
}

func addVMIs(_ context.Context, p *parts, pace controller.Options) error {
	return p.vmis.SetupWithManager(p.mgr, pace)
}

func addSelectedNodes(_ context.Context, p *parts, pace controller.Options) error {
	return (&vmi.SelectedNodes{Reconciler: p.vmis}).SetupWithManager(p.mgr, pace)
}

func addMigrations(ctx context.Context, p *parts, pace controller.Options) error {
	return (&migration.Reconciler{
		Client: p.cached, Reader: p.reader, Recorder: p.recorder("virtualmachineinstance-migration-controller"),
		Settings: p.settings, Render: p.vmis.RenderTarget, Destinations: p.vmis.Destinations, Now: p.now,
	}).SetupWithManager(ctx, p.mgr, pace)
}

func addEvacuations(_ context.Context, p *parts, pace controller.Options) error {
	return (&evacuation.Reconciler{
		Client: p.cached, Reader: p.reader, Recorder: p.recorder("evacuation-controller"), Settings: p.settings, Now: p.now,
	}).SetupWithManager(p.mgr, pace)
}

func addBudgets(_ context.Context, p *parts, pace controller.Options) error {
	return (&evacuation.Budgets{Client: p.cached, Now: p.now}).SetupWithManager(p.mgr, pace)
}

func addWorkloadUpdates(_ context.Context, p *parts, pace controller.Options) error {
	return (&workloadupdate.Reconciler{
		Client: p.cached, Recorder: p.recorder("workload-update-controller"), KubeVirt: p.kubeVirt, Image: p.launcherImage, Now: p.now,
	}).SetupWithManager(p.mgr, pace)
}

func addHotplug(ctx context.Context, p *parts, pace controller.Options) error {
	return (&hotplug.Reconciler{
		Client: p.cached, Reader: p.reader, Recorder: p.recorder("virtualmachine-controller"),
		Settings: p.settings, LauncherImage: p.launcherImage, MaxAttachmentPods: p.maxAttachmentPods, Now: p.now,
	}).SetupWithManager(ctx, p.mgr, pace)
}

func addClaimSizes(_ context.Context, p *parts, pace controller.Options) error {
	return (&claimsize.Reconciler{Client: p.cached}).SetupWithManager(p.mgr, pace)
}

func addVMs(ctx context.Context, p *parts, pace controller.Options) error {
	return (&vm.Reconciler{
		Client: p.cached, Reader: p.reader, Recorder: p.recorder("virtualmachine-controller"), Settings: p.settings, Now: p.now,
	}).SetupWithManager(ctx, p.mgr, pace)
}

func addReplicaSets(_ context.Context, p *parts, pace controller.Options) error {
	return (&replicaset.Reconciler{
		Client: p.cached, Reader: p.reader, Recorder: p.recorder("virtualmachinereplicaset-controller"), Now: p.now,
	}).SetupWithManager(p.mgr, pace)
}

func addSnapshots(_ context.Context, p *parts, pace controller.Options) error {
	guests := p.guests
	if guests == nil {
		var err error
		if guests, err = snapshot.NewGuests(p.mgr.GetConfig()); err != nil {
			return err
		}
	}
	return (&snapshot.Reconciler{
		Client: p.cached, Reader: p.reader, Guests: guests, Recorder: p.recorder("virtualmachinesnapshot-controller"), Now: p.now,
	}).SetupWithManager(p.mgr, pace)
}

func addClones(_ context.Context, p *parts, pace controller.Options) error {
	return (&clone.Reconciler{
		Client: p.cached, Reader: p.reader, Recorder: p.recorder("virtualmachineclone-controller"), Now: p.now,
	}).SetupWithManager(p.mgr, pace)
}

func addMaintenance(ctx context.Context, p *parts, pace controller.Options) error {
	return (&maintenance.Reconciler{
		Client: p.cached, Reader: p.reader, Recorder: p.recorder("maintenance-controller"), Now: p.now,
		Settings: p.settings, Disks: p.vmis,
	}).SetupWithManager(ctx, p.mgr, pace)
}

func addRestores(_ context.Context, p *parts, pace controller.Options) error {
	return (&restore.Reconciler{
		Client: p.cached, Reader: p.reader, Recorder: p.recorder("virtualmachinerestore-controller"), Now: p.now,
	}).SetupWithManager(p.mgr, pace)
}

func addDataVolumes(_ context.Context, p *parts, pace controller.Options) error {
	return p.volumes.SetupWithManager(p.mgr, pace)
}

func addLeftovers(_ context.Context, p *parts, pace controller.Options) error {
	return (&datavolume.Leftovers{Reconciler: p.volumes}).SetupWithManager(p.mgr, pace)
}

func addUploadClaims(_ context.Context, p *parts, pace controller.Options) error {
	return (&datavolume.UploadClaims{Reconciler: p.volumes}).SetupWithManager(p.mgr, pace)
}

func addDataSources(_ context.Context, p *parts, pace controller.Options) error {
	return (&datavolume.DataSources{Reconciler: p.volumes}).SetupWithManager(p.mgr, pace)
}

// The loop has its own pace.
func addCDI(_ context.Context, p *parts, _ controller.Options) error {
	return (&cdi.Reconciler{Client: p.cached, Direct: p.direct, Namespace: p.namespace, Now: p.now}).SetupWithManager(p.mgr)
}

func addCommonTypes(_ context.Context, p *parts, pace controller.Options) error {
	return (&commontypes.Reconciler{
		Client: p.cached, KubeVirt: p.kubeVirt, Recorder: p.recorder("common-instancetypes-controller"),
	}).SetupWithManager(p.mgr, pace)
}

func addSchedulable(_ context.Context, p *parts, pace controller.Options) error {
	return (&schedulable.Reconciler{Client: p.cached, Reader: p.reader, Namespace: p.namespace}).SetupWithManager(p.mgr, pace)
}

// The loop has its own pace.
func addKubeVirt(_ context.Context, p *parts, _ controller.Options) error {
	return (&kubevirt.Reconciler{
		Client: p.cached, Reader: p.reader, KubeVirt: p.kubeVirt, Namespace: p.namespace,
		Types: applyconfigurations.NewTypeConverter(p.mgr.GetScheme()),
	}).SetupWithManager(p.mgr)
}

// The object belongs to the cache and must not be changed; nil means none.
func kubeVirt(c client.Reader, namespace string) func(context.Context) (*v1.KubeVirt, error) {
	return func(ctx context.Context) (*v1.KubeVirt, error) {
		var all v1.KubeVirtList
		if err := c.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("reading the KubeVirt object: %w", err)
		}
		return clusterconfig.TheOne(all.Items, namespace), nil
	}
}

// settings reads the KubeVirt object on each call, so that a change applies to the next pod.
func settings(theOne func(context.Context) (*v1.KubeVirt, error), format logline.Format) func(context.Context) (clusterconfig.Settings, error) {
	return func(ctx context.Context) (clusterconfig.Settings, error) {
		kv, err := theOne(ctx)
		if err != nil {
			return clusterconfig.Settings{}, err
		}
		settings := clusterconfig.FromKubeVirt(kv)
		settings.LogFormat = format
		return settings, nil
	}
}
