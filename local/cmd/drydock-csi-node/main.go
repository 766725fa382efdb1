// Command drydock-csi-node is the CSI driver's node service. Every node's init starts it, so it must not link
// client-go or the Kubernetes API.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"drydock.dev/local/internal/csi"
	"drydock.dev/local/internal/csi/node"
	"drydock.dev/local/internal/csi/quiesce"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/volume"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "drydock-csi-node: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("starting: want the cluster's name and folder, the node and the kubelet's folder, got %q", args)
	}
	c := layout.Cluster{Name: args[0], Dir: args[1]}
	name, kubelet := args[2], args[3]
	service := filepath.Join(kubelet, "plugins", csi.Driver, "csi.sock")
	registrar := filepath.Join(kubelet, "plugins_registry", csi.Driver+"-reg.sock")
	server := &node.Server{Name: name, Tag: c.LoopTag(name), Store: volume.Of(c.Name, c.Dir)}
	if err := server.Thaw(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 3)
	go func() {
		ended <- csi.Serve(ctx, service, func(s *grpc.Server) {
			spec.RegisterIdentityServer(s, csi.Identity{})
			spec.RegisterNodeServer(s, server)
		})
	}()
	go func() {
		ended <- csi.Serve(ctx, registrar, func(s *grpc.Server) {
			registration.RegisterRegistrationServer(s, node.Registrar{Endpoint: service})
		})
	}()
	go func() { ended <- quiesce.Serve(ctx, c.QuiesceSocket(name), server.Hold) }()
	// The first server to end stops the others.
	err := <-ended
	cancel()
	return errors.Join(err, <-ended, <-ended)
}
