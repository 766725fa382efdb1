package nodeinit

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	containerd "github.com/containerd/containerd/v2/client"

	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/render"
)

func containerdReady(ctx context.Context) error {
	// containerd.New blocks for ten seconds without a socket, so try the socket first.
	conn, err := net.DialTimeout("unix", render.ContainerdSocket, time.Second)
	if err != nil {
		return err
	}
	_ = conn.Close() // nothing was sent
	client, err := containerd.New(render.ContainerdSocket, containerd.WithTimeout(2*time.Second))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // the client has only queried
	serving, err := client.IsServing(ctx)
	if err == nil && !serving {
		err = fmt.Errorf("containerd does not serve yet")
	}
	return err
}

// awaitAPIServer blocks until the API server's port accepts connections. It saves the components
// failed first attempts, each of which lengthens their backoff.
func awaitAPIServer(ctx context.Context, c layout.Cluster) error {
	address := netip.AddrPortFrom(c.HostIP(), layout.APIServerPort).String()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
