package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"drydock.dev/local/internal/cgroup"
	"drydock.dev/local/internal/host"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/loop"
	"drydock.dev/local/internal/network"
	"drydock.dev/local/internal/supervisor"
)

func newDown(o *options) *cobra.Command {
	var purge bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster; its objects are kept for the next up",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.down(cmd.Context(), purge)
		},
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "also delete the cluster's data")
	return cmd
}

// The times for the supervisor to shut down in order, and then to remove what is left.
const (
	orderly = 40 * time.Second
	forced  = 3 * time.Minute
)

// down ends the cluster by force when ctx ends: half a cluster would keep its memory and its network.
func (o *options) down(ctx context.Context, purge bool) error {
	began := time.Now()
	c, found, err := layout.Load(o.name, o.dir)
	if err != nil {
		return err
	}
	if !found {
		fmt.Fprintf(o.out, "There is no cluster %s in %s.\n", c.Name, c.Dir)
		return nil
	}
	if purge {
		if err := c.Purgeable(); err != nil {
			return err
		}
	}
	facts, err := host.Gather()
	if err != nil {
		return err
	}
	tree, err := cgroup.Open(facts.CgroupV2)
	if err != nil {
		return err
	}
	if answers(c) {
		if err := endSupervisor(ctx, c, tree); err != nil {
			fmt.Fprintf(o.err, "drydock: %v; going on by force\n", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forced)
	defer cancel()
	// The remaining processes were orphaned by a kill -9, or are slow.
	err = errors.Join(tree.Destroy(ctx, c.Cgroup()), network.Remove(c), loop.Detach(ctx, c.LoopTag(""), c.Dir), os.RemoveAll(c.RunDir()))
	if err != nil {
		return fmt.Errorf("taking cluster %s down: %w", c.Name, err)
	}
	tree.RemoveParent("/drydock")
	if purge {
		if err := c.Purge(); err != nil {
			return err
		}
	}
	fmt.Fprintf(o.out, "Cluster %s is down after %.1fs.\n", c.Name, time.Since(began).Seconds())
	return nil
}

// endSupervisor asks the supervisor to shut down and waits until no process of the control plane is
// left.
func endSupervisor(ctx context.Context, c layout.Cluster, tree cgroup.Tree) error {
	ctx, cancel := context.WithTimeout(ctx, orderly)
	defer cancel()
	if err := supervisor.NewClient(c).Down(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		pids, err := tree.Procs(c.ControlCgroup())
		if err != nil || len(pids) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the supervisor to end the cluster: %w", ctx.Err())
		case <-tick.C:
		}
	}
}
