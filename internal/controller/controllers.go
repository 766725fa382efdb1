package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/controller/clone"
	"drydock.dev/drydock/internal/controller/fairqueue"
	"drydock.dev/drydock/internal/controller/restore"
	"drydock.dev/drydock/internal/controller/rivals"
	"drydock.dev/drydock/internal/controller/snapshot"
)

type loop struct {
	of      string
	workers int
	// Each loop's watches are in its package's SetupWithManager.
	add func(ctx context.Context, p *parts, pace controller.Options) error
}

var loops = []loop{
	{"VirtualMachineInstances", workers, addVMIs},
	{"claims with a selected node", 1, addSelectedNodes},
	{"VirtualMachineInstanceMigrations", migrationWorkers, addMigrations},
	{"evacuations", migrationWorkers, addEvacuations},
	{"disruption budgets of guests", 1, addBudgets},
	{"outdated launcher pods", 1, addWorkloadUpdates},
	{"hotplugged volumes", workers, addHotplug},
	{"claims that grow", 1, addClaimSizes},
	{"VirtualMachines", workers, addVMs},
	{"VirtualMachineInstanceReplicaSets", 1, addReplicaSets},
	{"VirtualMachineSnapshots", snapshotWorkers, addSnapshots},
	{"VirtualMachineClones", snapshotWorkers, addClones},
	{"maintenance pods", snapshotWorkers, addMaintenance},
	{"VirtualMachineRestores", snapshotWorkers, addRestores},
	{"DataVolumes", workers, addDataVolumes},
	{"what DataVolumes left in other namespaces", 1, addLeftovers},
	{"claims that take uploads", 1, addUploadClaims},
	{"DataSources", 1, addDataSources},
	{"CDI's definitions", 1, addCDI},
	{"common instance types", 1, addCommonTypes},
	{"nodes that virt-handler leaves", 1, addSchedulable},
	{"the KubeVirt object", 1, addKubeVirt},
}

// workers is the concurrency of each loop of VMs, VMIs, hotplugged volumes and DataVolumes. Steps mostly wait for the API
// server.
const workers = 16

// migrationWorkers is about the number of concurrent migrations.
const migrationWorkers = 4

// snapshotWorkers is the concurrency of each loop of snapshots, restores, clones and maintenance pods. Each object
// needs a few requests, for as long as the storage takes.
const snapshotWorkers = 4

// pace returns a loop's options. Failures are retried at least every 30 seconds. Namespaces are served in turn.
func pace(workers int) controller.Options {
	return controller.Options{
		NewQueue:                fairqueue.New,
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, 30*time.Second),
	}
}

func register(ctx context.Context, mgr ctrl.Manager, o options) error {
	for _, index := range []func(context.Context, client.FieldIndexer) error{
		claimusers.Register, rivals.Register, snapshot.Register, restore.Register, clone.Register,
	} {
		if err := index(ctx, mgr.GetFieldIndexer()); err != nil {
			return err
		}
	}
	p, err := newParts(mgr, o)
	if err != nil {
		return err
	}
	for _, l := range loops {
		if err := l.add(ctx, p, pace(l.workers)); err != nil {
			return fmt.Errorf("adding the loop of %s: %w", l.of, err)
		}
	}
	return nil
}
