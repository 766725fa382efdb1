//go:build e2e

package e2e

import (
	"context"
	"net"
	"testing"
	"time"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/test/console"
)

// openConsole opens a VMI's serial console through the API server.
func openConsole(t *testing.T, namespace, name string) *console.Console {
	t.Helper()
	c, err := client.New(cluster.config)
	if err != nil {
		t.Fatalf("making a client of the subresources: %v", err)
	}
	ref := client.Ref{Resource: client.VirtualMachineInstances, Namespace: namespace, Name: name}
	var conn net.Conn
	eventually(t, "the console of "+name, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		conn, err = c.Stream(ctx, ref, "console")
		return err
	})
	t.Cleanup(func() { _ = conn.Close() }) // the test is over, whatever the close says
	return console.New(conn)
}
