package sidecar

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/external-provisioner/v5/pkg/capacity"
	"github.com/kubernetes-csi/external-provisioner/v5/pkg/capacity/topology"
	provision "github.com/kubernetes-csi/external-provisioner/v5/pkg/controller"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/util/workqueue"
	translation "k8s.io/csi-translation-lib"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v11/controller"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metricscontroller "sigs.k8s.io/sig-storage-lib-external-provisioner/v11/controller/metrics"

	"drydock.dev/local/internal/csi"
)

const (
	// capacityManager labels the CSIStorageCapacity objects that this process manages.
	capacityManager = "external-provisioner"
	// capacityPeriod is the interval between updates of the free space. Creating and deleting
	// volumes updates it at once.
	capacityPeriod = time.Minute
)

// csi-provisioner creates volumes for claims and publishes the nodes' capacity.
func (c *clients) provisioner(ctx context.Context) (func(context.Context), error) {
	plugin, driver, err := provision.GetDriverCapabilities(c.conn, callTimeout)
	if err != nil {
		return nil, fmt.Errorf("asking the driver what it can do: %w", err)
	}
	core, storage := c.coreInformers.Core().V1(), c.coreInformers.Storage().V1()
	provisioner := provision.NewCSIProvisioner(
		c.core, callTimeout,
		fmt.Sprintf("%d-%s", os.Getpid(), csi.Driver), "pvc", -1, // volume names are pvc-<UID>
		c.conn, c.snapshots, csi.Driver, plugin, driver, "",
		true, true, // topology: only the pod's node, or else any
		translation.New(),
		storage.StorageClasses().Lister(), storage.CSINodes().Lister(), core.Nodes().Lister(),
		core.PersistentVolumeClaims().Lister(), nil, nil,
		false, "ext4", nil, false, true)

	rate := workqueue.NewItemExponentialFailureRateLimiter(firstRetry, lastRetry) //nolint:staticcheck // the library's signature asks for it
	capacities, report := c.capacities(rate)
	provisioner = capacity.NewProvisionWrapper(provisioner, capacities)
	claims := core.PersistentVolumeClaims().Informer()
	claimed := controller.NewProvisionController(ctx, c.core, csi.Driver, provisioner,
		controller.LeaderElection(false),
		controller.FailedProvisionThreshold(0),
		controller.FailedDeleteThreshold(0),
		controller.RateLimiter(rate),
		controller.Threadiness(workers),
		controller.CreateProvisionedPVLimiter(workqueue.DefaultControllerRateLimiter()), //nolint:staticcheck // the library's signature asks for it
		controller.ClaimsInformer(claims),
		controller.VolumesInformer(core.PersistentVolumes().Informer()),
		controller.ClassesInformer(storage.StorageClasses().Informer()),
		controller.NodesLister(core.Nodes().Lister()),
		controller.MetricsInstance(metricscontroller.New("controller")),
		controller.AddFinalizer(true),
	)
	protection := provision.NewCloningProtectionController(c.core, core.PersistentVolumeClaims().Lister(), claims,
		workqueue.NewNamedRateLimitingQueue(rate, "claims"), driver)
	return func(ctx context.Context) {
		var running sync.WaitGroup
		running.Go(func() { report(ctx) })
		running.Go(func() { protection.Run(ctx, 1) })
		running.Go(func() { claimed.Run(ctx) })
		running.Wait()
	}, nil
}

// capacities maintains one CSIStorageCapacity per node and WaitForFirstConsumer class, which the
// scheduler uses to choose a node.
func (c *clients) capacities(rate workqueue.RateLimiter) (*capacity.Controller, func(context.Context)) { //nolint:staticcheck // the library's signature asks for it
	core, storage := c.coreInformers.Core().V1(), c.coreInformers.Storage().V1()
	nodes := topology.NewNodeTopology(csi.Driver, c.core, core.Nodes(), storage.CSINodes(),
		workqueue.NewNamedRateLimitingQueue(rate, "csitopology"))
	ours := informers.NewSharedInformerFactoryWithOptions(c.core, resync,
		informers.WithNamespace(Namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = labels.Set{
				capacity.DriverNameLabel: csi.Driver, capacity.ManagedByLabel: capacityManager,
			}.String()
		}))
	controller := capacity.NewCentralCapacityController(
		spec.NewControllerClient(c.conn), csi.Driver, capacity.NewV1ClientFactory(c.core),
		workqueue.NewNamedRateLimitingQueue(rate, "csistoragecapacity"),
		nil, capacityManager, Namespace, nodes,
		storage.StorageClasses(), ours.Storage().V1().CSIStorageCapacities(),
		capacityPeriod, false, callTimeout)
	return controller, func(ctx context.Context) {
		var running sync.WaitGroup
		ours.Start(ctx.Done())
		running.Go(func() { nodes.RunWorker(ctx) })
		running.Go(func() { controller.Run(ctx, 1) })
		running.Wait()
	}
}
