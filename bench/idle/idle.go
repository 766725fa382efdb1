// Package idle measures the costs of idle VMIs: the host's CPU time and the writes to the API server.
//
// CPU time is counted per process, so that other work hardly affects it. Only writes in the VMIs' namespace are
// theirs.
//
// It must not measure a VMI's start.
package idle

import (
	"context"
	"flag"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/audit"
	"drydock.dev/drydock/bench/baseline"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/proc"
	"drydock.dev/drydock/bench/report"
)

// Options are the benchmark's options.
type Options struct {
	vmis   int
	window time.Duration
}

// Flags adds the benchmark's flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.IntVar(&o.vmis, "idle-vmis", 3, "idle: VMIs that only run")
	f.DurationVar(&o.window, "idle-window", 4*time.Minute, "idle: how long they are looked at")
}

const (
	// baselineWindow is the measured time of virt-handler without VMIs.
	baselineWindow = time.Minute
	// settle is the wait after the agents are connected: their addresses are polled a few times,
	// emulation translates the idle guest's code, and the kubelet writes each pod's status once
	// more at its first periodic sync, at most 90 s after the start.
	settle = 100 * time.Second
)

// Run runs the benchmark.
func (o *Options) Run(ctx context.Context, c *cluster.Cluster, r *report.Report) error {
	logs, err := c.AuditLogs(ctx)
	if err != nil {
		return err
	}
	without, err := handlersAlone(ctx, c)
	if err != nil {
		return err
	}
	ns, remove, err := c.NewNamespace(ctx)
	if err != nil {
		return err
	}
	defer remove()
	for i := range o.vmis {
		if err := c.Client.Create(ctx, cluster.VMI(ns, fmt.Sprintf("idle-%d", i))); err != nil {
			return fmt.Errorf("creating a VMI that only runs: %w", err)
		}
	}
	if err := c.AwaitAgents(ctx, ns); err != nil {
		return err
	}
	if err := cluster.Wait(ctx, settle); err != nil {
		return err
	}
	began := time.Now()
	before, err := o.look(ctx, c, ns)
	if err != nil {
		return err
	}
	if err := cluster.Wait(ctx, o.window); err != nil {
		return err
	}
	after, err := o.look(ctx, c, ns)
	if err != nil {
		return err
	}
	window := time.Since(began)
	if err := o.addCPU(r, before, after, window, without); err != nil {
		return err
	}
	requests, err := audit.AllSince(logs, began)
	if err != nil {
		return err
	}
	o.addRequests(r, ns, requests, window)
	return nil
}

// The unit is per cent of a core.
func handlersAlone(ctx context.Context, c *cluster.Cluster) (float64, error) {
	began := time.Now()
	before, err := handlers(ctx, c)
	if err != nil {
		return 0, err
	}
	if err := cluster.Wait(ctx, baselineWindow); err != nil {
		return 0, err
	}
	after, err := handlers(ctx, c)
	return percent(after-before, time.Since(began)), err
}

func handlers(ctx context.Context, c *cluster.Cluster) (time.Duration, error) {
	pods, err := c.Components(ctx, "virt-handler")
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for i := range pods {
		processes, err := proc.OfPod(string(pods[i].UID))
		if err != nil {
			return 0, err
		}
		for _, p := range processes {
			used, err := proc.CPU(p.PID)
			if err != nil {
				return 0, err
			}
			sum += used
		}
	}
	return sum, nil
}

// spent is CPU time so far: of each guest's QEMU and virt-launcher by the launcher pod's UID, and
// of all virt-handlers.
type spent struct {
	qemu, launcher map[string]time.Duration
	handlers       time.Duration
}

func (o *Options) look(ctx context.Context, c *cluster.Cluster, ns string) (spent, error) {
	s := spent{qemu: map[string]time.Duration{}, launcher: map[string]time.Duration{}}
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(ns)); err != nil {
		return s, fmt.Errorf("listing the launcher pods: %w", err)
	}
	for i := range pods.Items {
		uid := string(pods.Items[i].UID)
		processes, err := proc.OfPod(uid)
		if err != nil {
			return s, err
		}
		for _, p := range processes {
			of := s.launcher
			switch {
			case baseline.IsQEMU(p):
				of = s.qemu
			case p.Name() != "virt-launcher":
				continue
			}
			used, err := proc.CPU(p.PID)
			if err != nil {
				return s, err
			}
			of[uid] += used
		}
	}
	if len(s.qemu) != o.vmis || len(s.launcher) != o.vmis {
		return s, fmt.Errorf("looking for QEMU and virt-launcher of %d VMIs: there are %d and %d", o.vmis, len(s.qemu), len(s.launcher))
	}
	var err error
	s.handlers, err = handlers(ctx, c)
	return s, err
}

func (o *Options) addCPU(r *report.Report, before, after spent, window time.Duration, without float64) error {
	for uid, used := range after.qemu {
		began, known := before.qemu[uid]
		if !known {
			return fmt.Errorf("comparing the CPU time of the launcher pods: the one with UID %s is new", uid)
		}
		r.Add("idle.guest_cpu_percent", "percent", percent(used-began, window))
		r.Add("idle.launcher_cpu_percent", "percent", percent(after.launcher[uid]-before.launcher[uid], window))
	}
	with := percent(after.handlers-before.handlers, window)
	r.Add("idle.handlers_cpu_percent", "percent", without)
	r.Add("idle.handler_cpu_percent_per_vmi", "percent", (with-without)/float64(o.vmis))
	return nil
}

func percent(used, in time.Duration) float64 { return 100 * used.Seconds() / in.Seconds() }

func (o *Options) addRequests(r *report.Report, ns string, all []audit.Request, window time.Duration) {
	drydocks := audit.Of(all, func(q audit.Request) bool { return q.Drydock })
	theirs := audit.Of(all, func(q audit.Request) bool { return q.Namespace == ns && !audit.OfNamespace(q) })
	others := audit.Of(all, func(q audit.Request) bool { return q.Namespace != ns })
	perMinute := float64(o.vmis) * window.Minutes()
	r.Add("api.idle_writes_per_vmi_per_min", "requests", float64(audit.Count(drydocks, audit.Write))/perMinute)
	r.Add("api.idle_reads_per_vmi_per_min", "requests", float64(audit.Count(drydocks, audit.Read)+audit.Count(drydocks, audit.List))/perMinute)
	r.Add("api.idle_writes_all_per_vmi_per_hour", "requests", float64(audit.Count(theirs, audit.Write))/float64(o.vmis)/window.Hours())
	r.Add("api.idle_writes_cluster_per_hour", "requests", float64(audit.Count(others, audit.Write))/window.Hours())
	r.Add("api.idle_leases_cluster_per_hour", "requests", float64(audit.Count(others, audit.Lease))/window.Hours())
	r.Logf("while %d VMIs only ran for %v, in their namespace:", o.vmis, window.Round(time.Second))
	for _, line := range audit.Sums(theirs) {
		r.Logf("%s", line)
	}
	r.Logf("and in the rest of the cluster:")
	for _, line := range audit.Sums(others) {
		r.Logf("%s", line)
	}
}
