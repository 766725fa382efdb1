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

	"drydock.dev/drydock/internal/contracts/logline"
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
	// lines are those about a VM or a VMI; others are controller-runtime's.
	lines subject
}

var loops = []loop{
	{"VirtualMachineInstances", workers, addVMIs, subject{"virtualmachineinstance", logline.VMI, itsVMI}},
	{"claims with a selected node", 1, addSelectedNodes, subject{}},
	{"VirtualMachineInstanceMigrations", migrationWorkers, addMigrations, subject{"virtualmachineinstancemigration", logline.VMI, vmiOfMigration}},
	{"evacuations", migrationWorkers, addEvacuations, subject{"evacuation", logline.VMI, itsVMI}},
	{"disruption budgets of guests", 1, addBudgets, subject{}},
	{"outdated launcher pods", 1, addWorkloadUpdates, subject{}},
	{"hotplugged volumes", workers, addHotplug, subject{"hotplug", logline.VMI, itsVMI}},
	{"claims that grow", 1, addClaimSizes, subject{"claimsize", logline.VMI, itsVMI}},
	{"VirtualMachines", workers, addVMs, subject{"virtualmachine", logline.VM, itsVM}},
	{"VirtualMachineInstanceReplicaSets", 1, addReplicaSets, subject{}},
	{"VirtualMachineSnapshots", snapshotWorkers, addSnapshots, subject{}},
	{"VirtualMachineClones", snapshotWorkers, addClones, subject{}},
	{"maintenance pods", snapshotWorkers, addMaintenance, subject{"maintenance", logline.VM, itsVM}},
	{"VirtualMachineRestores", snapshotWorkers, addRestores, subject{}},
	{"DataVolumes", workers, addDataVolumes, subject{}},
	{"what DataVolumes left in other namespaces", 1, addLeftovers, subject{}},
	{"claims that take uploads", 1, addUploadClaims, subject{}},
	{"DataSources", 1, addDataSources, subject{}},
	{"CDI's definitions", 1, addCDI, subject{}},
	{"common instance types", 1, addCommonTypes, subject{}},
	{"nodes that virt-handler leaves", 1, addSchedulable, subject{}},
	{"the KubeVirt object", 1, addKubeVirt, subject{}},
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
		options := pace(l.workers)
		options.LogConstructor = l.lines.logger(mgr.GetLogger(), mgr.GetCache())
		if err := l.add(ctx, p, options); err != nil {
			return fmt.Errorf("adding the loop of %s: %w", l.of, err)
		}
	}
	return nil
}
