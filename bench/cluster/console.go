package cluster

import (
	"context"
	"fmt"
	"net"

	virtctl "drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/test/console"
)

// Console opens a VMI's console. The caller closes the connection.
func (c *Cluster) Console(ctx context.Context, namespace, name string) (net.Conn, error) {
	client, err := virtctl.New(c.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client of virt-api: %w", err)
	}
	conn, err := client.Stream(ctx, virtctl.Ref{Resource: virtctl.VirtualMachineInstances, Namespace: namespace, Name: name}, "console")
	if err != nil {
		return nil, fmt.Errorf("opening the console of %s: %w", name, err)
	}
	return conn, nil
}

// Login logs in to the test guest, once it has booted.
func Login(ctx context.Context, conn net.Conn) (*console.Console, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	shell := console.New(conn)
	if err := shell.Login(ctx); err != nil {
		return nil, fmt.Errorf("logging in to a guest: %w", err)
	}
	return shell, nil
}
