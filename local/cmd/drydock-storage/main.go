// Command drydock-storage is the storage controller of an embedded cluster. One process for all
// nodes runs the CSI driver's controller service and the Kubernetes controllers that use it. The
// supervisor of the drydock command starts it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"drydock.dev/local/internal/csi"
	"drydock.dev/local/internal/csi/controller"
	"drydock.dev/local/internal/csi/quiesce"
	"drydock.dev/local/internal/csi/sidecar"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/volume"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "drydock-storage: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("starting: want the cluster's name and folder, got %q", args)
	}
	c, found, err := layout.Load(args[0], args[1])
	if err == nil && !found {
		err = fmt.Errorf("starting: there is no cluster in %s", c.Dir)
	}
	if err != nil {
		return err
	}
	store := volume.Of(c.Name, c.Dir)
	store.Hold = func(ctx context.Context, v volume.Volume) (func() error, error) {
		if v.Kind != volume.Ext4 {
			return func() error { return nil }, nil // only a filesystem can be frozen from outside
		}
		return quiesce.Hold(ctx, c.QuiesceSocket(v.Disk), v.ID())
	}
	if err := store.Sweep(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	go func() {
		ended <- csi.Serve(ctx, c.StorageSocket(), func(s *grpc.Server) {
			spec.RegisterIdentityServer(s, csi.Identity{})
			spec.RegisterControllerServer(s, controller.New(store))
		})
	}()
	go func() { ended <- sidecar.Run(ctx, c.Config("storage.kubeconfig"), c.StorageSocket()) }()
	// The first to end stops the other.
	err = <-ended
	cancel()
	return errors.Join(err, <-ended)
}
