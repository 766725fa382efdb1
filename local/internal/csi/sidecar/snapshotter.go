package sidecar

import (
	"context"
	"fmt"
	"sync"

	common "github.com/kubernetes-csi/external-snapshotter/v8/pkg/common-controller"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/metrics"
	side "github.com/kubernetes-csi/external-snapshotter/v8/pkg/sidecar-controller"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/snapshotter"
	"k8s.io/client-go/util/workqueue"

	resizecsi "github.com/kubernetes-csi/external-resizer/pkg/csi"

	resize "github.com/kubernetes-csi/external-resizer/pkg/controller"
	"github.com/kubernetes-csi/external-resizer/pkg/resizer"

	"drydock.dev/local/internal/csi"
	"drydock.dev/local/internal/csi/podsync"
)

func retries() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)
}

// snapshot-controller binds snapshots to contents, and csi-snapshotter calls the driver.
func (c *clients) snapshotter(context.Context) (func(context.Context), error) {
	core := c.coreInformers.Core().V1()
	snapshots, groups := c.snapshotInformers.Snapshot().V1(), c.snapshotInformers.Groupsnapshot().V1beta1()
	bound, err := waiting(snapshots.VolumeSnapshots(), core.PersistentVolumeClaims())
	if err != nil {
		return nil, err
	}
	binding := common.NewCSISnapshotCommonController(
		c.snapshots, c.core,
		bound, snapshots.VolumeSnapshotContents(), snapshots.VolumeSnapshotClasses(),
		groups.VolumeGroupSnapshots(), groups.VolumeGroupSnapshotContents(), groups.VolumeGroupSnapshotClasses(),
		core.PersistentVolumeClaims(), core.PersistentVolumes(), nil,
		metrics.NewMetricsManager(), resync,
		retries(), retries(), retries(), retries(),
		false, true, false)
	making := side.NewCSISnapshotSideCarController(
		c.snapshots, c.core, csi.Driver,
		snapshots.VolumeSnapshotContents(), snapshots.VolumeSnapshotClasses(),
		snapshotter.NewSnapshotter(c.conn), nil, callTimeout, resync,
		"snapshot", -1, "groupsnapshot", -1, // snapshot names are snapshot-<UID>
		false, retries(), false,
		groups.VolumeGroupSnapshotContents(), groups.VolumeGroupSnapshotClasses(), retries())
	return func(ctx context.Context) {
		var running sync.WaitGroup
		running.Go(func() { binding.Run(workers, ctx.Done()) })
		running.Go(func() { making.Run(workers, ctx.Done()) })
		running.Wait()
	}, nil
}

func (c *clients) resizer(ctx context.Context) (func(context.Context), error) {
	client, err := resizecsi.New(ctx, c.socket, callTimeout, c.metrics)
	if err != nil {
		return nil, fmt.Errorf("connecting csi-resizer to the driver: %w", err)
	}
	made, err := resizer.NewResizerFromClient(client, callTimeout, c.core, csi.Driver)
	if err != nil {
		return nil, fmt.Errorf("making csi-resizer: %w", err)
	}
	// The driver expands volumes in use, so pods need no watch.
	const watchPods = false
	growing := resize.NewResizeController(csi.Driver, made, c.core, resync, c.coreInformers, retries(), watchPods, lastRetry)
	return func(ctx context.Context) { growing.Run(workers, ctx) }, nil
}

func (c *clients) podSync(context.Context) (func(context.Context), error) {
	made, err := podsync.New(c.core, c.coreInformers.Core().V1().PersistentVolumeClaims(), retries())
	if err != nil {
		return nil, err
	}
	return made.Run, nil
}
