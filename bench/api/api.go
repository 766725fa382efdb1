// Package api measures what a VM costs the API server: the requests of Drydock's
// components in the life of one VMI, of one VM, and while VMIs only run.
//
// A life begins with the creation and ends when the object is gone; in between
// the guest has booted and its agent has told its name. What other parts of
// Kubernetes do for the launcher pod (scheduler, kubelet) is not counted: a bare
// pod costs it as well.
package api

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"time"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/audit"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/report"
)

// Options are what can be chosen.
type Options struct {
	rounds, idlers int
	idle           time.Duration
}

// Flags adds the benchmark's flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.IntVar(&o.rounds, "api-rounds", 3, "api: lives of a VMI and of a VM")
	f.IntVar(&o.idlers, "api-idle-vmis", 3, "api: VMIs that only run")
	f.DurationVar(&o.idle, "api-idle", time.Minute, "api: how long they only run")
}

// settle is how long a component may take to write what it has to say about
// something that has happened: events wait for their batch.
const settle = 3 * time.Second

// Run measures.
func (o *Options) Run(ctx context.Context, c *cluster.Cluster, r *report.Report) error {
	logs, err := c.AuditLogs(ctx)
	if err != nil {
		return err
	}
	for i := range o.rounds {
		for _, kind := range []string{"vmi", "vm"} {
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
	return o.measureIdle(ctx, c, logs, r)
}

func addLife(r *report.Report, kind string, requests []audit.Request) {
	for what, name := range map[audit.Kind]string{
		audit.Write: "writes", audit.Read: "reads", audit.List: "lists", audit.Watch: "watches", audit.Review: "reviews",
	} {
		r.Add(fmt.Sprintf("api.%s_per_%s_life", name, kind), "requests", float64(audit.Count(requests, what)))
	}
	for _, component := range []string{"apiserver", "controller", "handler"} {
		of := slices.DeleteFunc(slices.Clone(requests), func(q audit.Request) bool { return q.Component != component })
		r.Add(fmt.Sprintf("api.writes_per_%s_life_%s", kind, component), "requests", float64(audit.Count(of, audit.Write)))
	}
}

// life lets a VMI, or a VM with one, live and returns what it took.
func life(ctx context.Context, c *cluster.Cluster, logs, kind string) ([]audit.Request, error) {
	ns, remove, err := c.NewNamespace(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	var object client.Object = cluster.VMI(ns, "counted")
	if kind == "vm" {
		object = cluster.VM(cluster.VMI(ns, "counted"))
	}
	began := time.Now()
	if err := c.Client.Create(ctx, object); err != nil {
		return nil, fmt.Errorf("creating it: %w", err)
	}
	if err := awaitAgent(ctx, c, ns); err != nil {
		return nil, err
	}
	if err := wait(ctx, settle); err != nil {
		return nil, err
	}
	if err := c.DeleteAndAwait(ctx, object); err != nil {
		return nil, err
	}
	if err := wait(ctx, settle); err != nil {
		return nil, err
	}
	requests, err := audit.Since(logs, began)
	return slices.DeleteFunc(requests, func(q audit.Request) bool {
		return q.Namespace != ns && q.Kind() != audit.Review
	}), err
}

func awaitAgent(ctx context.Context, c *cluster.Cluster, namespace string) error {
	return cluster.Eventually(ctx, "the guest's agent", func(ctx context.Context) (bool, error) {
		var vmis v1.VirtualMachineInstanceList
		if err := c.Client.List(ctx, &vmis, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		return len(vmis.Items) > 0 && !slices.ContainsFunc(vmis.Items, func(vmi v1.VirtualMachineInstance) bool {
			return !slices.ContainsFunc(vmi.Status.Conditions, func(c v1.VirtualMachineInstanceCondition) bool {
				return c.Type == v1.VirtualMachineInstanceAgentConnected
			})
		}), nil
	})
}

// measureIdle counts what is written while VMIs only run.
func (o *Options) measureIdle(ctx context.Context, c *cluster.Cluster, logs string, r *report.Report) error {
	ns, remove, err := c.NewNamespace(ctx)
	if err != nil {
		return err
	}
	defer remove()
	for i := range o.idlers {
		if err := c.Client.Create(ctx, cluster.VMI(ns, fmt.Sprintf("idle-%d", i))); err != nil {
			return fmt.Errorf("creating a VMI that only runs: %w", err)
		}
	}
	if err := awaitAgent(ctx, c, ns); err != nil {
		return err
	}
	// The guest's addresses are asked for some times after its agent has come.
	if err := wait(ctx, 10*time.Second); err != nil {
		return err
	}
	began := time.Now()
	if err := wait(ctx, o.idle); err != nil {
		return err
	}
	requests, err := audit.Since(logs, began)
	if err != nil {
		return err
	}
	perVMI := float64(o.idlers) * o.idle.Minutes()
	r.Add("api.idle_writes_per_vmi_per_min", "requests", float64(audit.Count(requests, audit.Write))/perVMI)
	r.Add("api.idle_reads_per_vmi_per_min", "requests", float64(audit.Count(requests, audit.Read)+audit.Count(requests, audit.List))/perVMI)
	for _, line := range audit.Sums(requests) {
		r.Logf("while %d VMIs only ran for %v: %s", o.idlers, o.idle, line)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
