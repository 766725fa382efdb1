// Package sidecar runs the controllers between Kubernetes and the CSI driver in one process with one set of
// watches: csi-provisioner, csi-resizer, csi-snapshotter, snapshot-controller, and podsync. It decides only their
// configuration, and must not know the volumes.
package sidecar

import (
	"context"
	"fmt"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"github.com/kubernetes-csi/csi-lib-utils/metrics"
	snapclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	snapscheme "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/scheme"
	snapinformers "github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"drydock.dev/local/internal/csi"
)

const (
	// Namespace holds the CSIStorageCapacity objects.
	Namespace = "kube-system"

	// callTimeout allows for the copy of a whole disk, if the filesystem can't share blocks.
	callTimeout = 10 * time.Minute
	// resync only covers objects that a controller has forgotten.
	resync = 15 * time.Minute
	// The first and the longest delay before the retry of a failed call.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
	workers    = 8
)

type clients struct {
	config    *rest.Config
	core      kubernetes.Interface
	snapshots snapclient.Interface
	conn      *grpc.ClientConn
	// socket is the driver's, for csi-resizer, which makes its own connection.
	socket  string
	metrics metrics.CSIMetricsManager

	coreInformers     informers.SharedInformerFactory
	snapshotInformers snapinformers.SharedInformerFactory
}

// Run runs the controllers until the context ends.
func Run(ctx context.Context, kubeconfig, socket string) error {
	c, err := connect(ctx, kubeconfig, socket)
	if err != nil {
		return err
	}
	defer func() { _ = c.conn.Close() }() // nothing is sent any more
	// A watch that fails at first retries only after a delay: `up` installs the CRDs.
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		found, err := c.core.Discovery().ServerResourcesForGroupVersion("snapshot.storage.k8s.io/v1")
		if err != nil {
			return false, nil
		}
		served := map[string]bool{}
		for _, r := range found.APIResources {
			served[r.Kind] = true
		}
		return served["VolumeSnapshot"] && served["VolumeSnapshotContent"] && served["VolumeSnapshotClass"], nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the snapshot API: %w", err)
	}
	var controllers []func(context.Context)
	for _, make := range []func(context.Context) (func(context.Context), error){c.provisioner, c.resizer, c.podSync, c.snapshotter} {
		run, err := make(ctx)
		if err != nil {
			return err
		}
		controllers = append(controllers, run)
	}
	c.coreInformers.Start(ctx.Done())
	c.snapshotInformers.Start(ctx.Done())
	c.coreInformers.WaitForCacheSync(ctx.Done())
	c.snapshotInformers.WaitForCacheSync(ctx.Done())
	for _, run := range controllers {
		go run(ctx)
	}
	// Some controllers never return. They hold no state, so the process may end without them.
	<-ctx.Done()
	return nil
}

func connect(ctx context.Context, kubeconfig, socket string) (*clients, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	c := &clients{config: config, socket: socket, metrics: metrics.NewCSIMetricsManagerForSidecar(csi.Driver)}
	core := rest.CopyConfig(config)
	core.ContentType = runtime.ContentTypeProtobuf
	if c.core, err = kubernetes.NewForConfig(core); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if c.snapshots, err = snapclient.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client for snapshots: %w", err)
	}
	// Events about snapshots are recorded with this scheme.
	if err := snapscheme.AddToScheme(scheme.Scheme); err != nil {
		return nil, fmt.Errorf("registering the snapshot API: %w", err)
	}
	if c.conn, err = connection.Connect(ctx, socket, c.metrics); err != nil {
		return nil, fmt.Errorf("connecting to the driver: %w", err)
	}
	c.coreInformers = informers.NewSharedInformerFactory(c.core, resync)
	c.snapshotInformers = snapinformers.NewSharedInformerFactory(c.snapshots, resync)
	return c, nil
}
