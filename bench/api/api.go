// Package api measures the API requests in the lives of one VMI and one VM. It must not measure running VMs;
// package idle does.
//
// A life ends when the object is gone, after the guest has booted and its agent is connected. Drydock's requests
// are counted separately; the writes of all components count, too, because scheduler, kubelet and controllers
// write for the launcher pod. A bare pod is the baseline.
package api

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/audit"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/report"
)

// Options are the benchmark's options.
type Options struct {
	rounds int
}

// Flags adds the benchmark's flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.IntVar(&o.rounds, "api-rounds", 3, "api: lives of a VMI, of a VM and of a bare pod")
}

// Run runs the benchmark.
func (o *Options) Run(ctx context.Context, c *cluster.Cluster, r *report.Report) error {
	logs, err := c.AuditLogs(ctx)
	if err != nil {
		return err
	}
	for i := range o.rounds {
		for _, kind := range []string{"vmi", "vm", "pod"} {
			requests, err := life(ctx, c, logs, kind)
			if err != nil {
				return fmt.Errorf("counting the requests of one %s's life: %w", kind, err)
			}
			addLife(r, kind, requests)
			if i == 0 {
				r.Logf("one %s's life, by component, verb and resource:", kind)
				for _, line := range audit.Sums(requests) {
					r.Logf("%s", line)
				}
			}
		}
	}
	return nil
}

// Drydock has no part in a bare pod's life.
func addLife(r *report.Report, kind string, all []audit.Request) {
	r.Add(fmt.Sprintf("api.writes_all_per_%s_life", kind), "requests", float64(audit.Count(all, audit.Write)))
	events := audit.Of(all, func(q audit.Request) bool { return q.Resource == "events" })
	r.Add(fmt.Sprintf("api.writes_all_per_%s_life_events", kind), "requests", float64(audit.Count(events, audit.Write)))
	if kind != "pod" {
		requests := audit.Of(all, func(q audit.Request) bool { return q.Drydock })
		for what, name := range map[audit.Kind]string{
			audit.Write: "writes", audit.Read: "reads", audit.List: "lists", audit.Watch: "watches", audit.Review: "reviews",
		} {
			r.Add(fmt.Sprintf("api.%s_per_%s_life", name, kind), "requests", float64(audit.Count(requests, what)))
		}
		for _, component := range []string{"apiserver", "controller", "handler"} {
			of := audit.Of(requests, func(q audit.Request) bool { return q.Component == component })
			r.Add(fmt.Sprintf("api.writes_per_%s_life_%s", kind, component), "requests", float64(audit.Count(of, audit.Write)))
		}
	}
}

func life(ctx context.Context, c *cluster.Cluster, logs, kind string) ([]audit.Request, error) {
	ns, remove, err := c.NewNamespace(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	began := time.Now()
	if err := live(ctx, c, kind, ns); err != nil {
		return nil, err
	}
	requests, err := audit.AllSince(logs, began)
	return slices.DeleteFunc(requests, func(q audit.Request) bool {
		return q.Namespace != ns && (q.Kind() != audit.Review || !q.Drydock) || audit.OfNamespace(q)
	}), err
}

// The components write their last updates afterwards.
func live(ctx context.Context, c *cluster.Cluster, kind, ns string) error {
	const name = "counted"
	var object client.Object
	switch kind {
	case "vmi":
		object = cluster.VMI(ns, name)
	case "vm":
		object = cluster.VM(cluster.VMI(ns, name))
	default:
		pod := cluster.BarePod(ns, name)
		if _, err := c.TimePod(ctx, pod); err != nil { // TimePod also deletes it
			return err
		}
		return cluster.Wait(ctx, cluster.Settle)
	}
	if err := c.Client.Create(ctx, object); err != nil {
		return fmt.Errorf("creating it: %w", err)
	}
	if err := c.AwaitAgents(ctx, ns); err != nil {
		return err
	}
	if err := cluster.Wait(ctx, cluster.Settle); err != nil {
		return err
	}
	if err := c.DeleteAndAwait(ctx, object); err != nil {
		return err
	}
	return cluster.Wait(ctx, cluster.Settle)
}
