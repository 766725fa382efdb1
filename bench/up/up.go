// Package up measures how long the embedded cluster takes to come up again. It stops the cluster, so it must be
// the last benchmark of a run.
package up

import (
	"context"
	"time"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/report"
)

const rounds = 3

// Run runs the benchmark.
func Run(ctx context.Context, c *cluster.Cluster, r *report.Report) error {
	for range rounds {
		if _, err := c.Run(ctx, "drydock", "down"); err != nil {
			return err
		}
		began := time.Now()
		if _, err := c.Run(ctx, "drydock", "up"); err != nil {
			return err
		}
		r.Add("up.warm_s", "s", time.Since(began).Seconds())
	}
	return nil
}
