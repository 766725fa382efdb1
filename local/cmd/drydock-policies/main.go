// Command drydock-policies enforces the cluster's NetworkPolicies on a node, in the node's network namespace.
// Every node's init starts it, so it is small.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/policyagent"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "drydock-policies: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 5 {
		return fmt.Errorf("starting: want the cluster's name and folder, the node, its bridge and the agent's folder, got %q", args)
	}
	c, found, err := layout.Load(args[0], args[1])
	if err == nil && !found {
		err = fmt.Errorf("starting: there is no cluster in %s", c.Dir)
	}
	if err != nil {
		return err
	}
	return policyagent.Run(ctx, policyagent.Config{
		Node: args[2], Bridge: args[3], Host: c.HostIP(), Folder: args[4],
	}, c.Config("policies.kubeconfig"))
}
