// Package maintenance measures how long a maintenance pod of a halted VM takes to run, interleaved with a bare
// pod with the same claims.
//
// It must not test whether the lock is correct.
package maintenance

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/audit"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/interleave"
	"drydock.dev/drydock/bench/report"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

// Options are the benchmark's options.
type Options struct {
	rounds int
}

// Flags adds the benchmark's flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.IntVar(&o.rounds, "maintenance-rounds", 15, "maintenance: how often the VM is taken to maintenance")
}

const vmName = "vm"

var disks = []string{"one", "two"}

// Run runs the benchmark.
func (o *Options) Run(ctx context.Context, c *cluster.Cluster, r *report.Report) error {
	ns, remove, err := c.NewNamespace(ctx)
	if err != nil {
		return err
	}
	defer remove()
	vm := cluster.VM(cluster.VMI(ns, vmName))
	vm.Spec.RunStrategy = new(v1.RunStrategyHalted)
	for _, name := range disks {
		if err := c.Client.Create(ctx, cluster.BlockClaim(ns, name)); err != nil {
			return fmt.Errorf("making the claim %s: %w", name, err)
		}
		cluster.AddDisk(vm, name)
	}
	if _, _, err := c.CreateAndAwait(ctx, vm, &v1.VirtualMachineList{}, isStopped); err != nil {
		return fmt.Errorf("making the VM: %w", err)
	}
	began := time.Now()
	for i := range o.rounds + 1 {
		t := &round{cluster: c, namespace: ns, number: i}
		if err := t.run(ctx); err != nil {
			return fmt.Errorf("in round %d: %w", i, err)
		}
		if i > 0 { // the first round has cold caches
			r.Add("maintenance.bare_pod_running_s", "s", t.bare.Seconds())
			r.Add("maintenance.running_s", "s", t.maintainer.Seconds())
			r.Add("maintenance.running_minus_pod_s", "s", (t.maintainer - t.bare).Seconds())
			r.Add("maintenance.released_s", "s", t.released.Seconds())
			r.Logf("bare pod %.2f s, maintenance pod %.2f s; deleted, and unlocked after %.2f s", t.bare.Seconds(), t.maintainer.Seconds(), t.released.Seconds())
		}
	}
	if err := cluster.Wait(ctx, cluster.Settle); err != nil {
		return err
	}
	requests, err := c.RequestsSince(ctx, began)
	if err != nil {
		return err
	}
	requests = audit.Of(requests, func(q audit.Request) bool { return q.Namespace == ns })
	r.Add("maintenance.writes", "requests", float64(audit.Count(requests, audit.Write))/float64(o.rounds+1))
	for _, line := range audit.Sums(requests) {
		r.Logf("%s", line)
	}
	return nil
}

func isStopped(o client.Object) bool {
	vm, ok := o.(*v1.VirtualMachine)
	return ok && vm.Status.PrintableStatus == v1.VirtualMachineStatusStopped
}

type round struct {
	cluster   *cluster.Cluster
	namespace string
	number    int

	bare, maintainer, released time.Duration
}

func (t *round) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*cluster.Patience)
	defer cancel()
	return interleave.Run(ctx, t.number, t.startBare, t.maintain)
}

func (t *round) pod(name string) *corev1.Pod {
	pod := cluster.BarePod(t.namespace, name+"-"+strconv.Itoa(t.number))
	for _, disk := range disks {
		cluster.AddDevice(pod, disk, disk)
	}
	return pod
}

func (t *round) startBare(ctx context.Context) error {
	took, err := t.cluster.TimePod(ctx, t.pod("bare"))
	if err != nil {
		return fmt.Errorf("starting a bare pod with the claims: %w", err)
	}
	t.bare = took
	return nil
}

// The VM's unlocking is timed after the pod's deletion.
func (t *round) maintain(ctx context.Context) error {
	pod := t.pod("maintainer")
	pod.Labels = map[string]string{layout.MaintenanceForLabel: vmName}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	began, ended, err := t.cluster.CreateAndAwait(ctx, pod, &corev1.PodList{}, cluster.PodRunning)
	if err != nil {
		return fmt.Errorf("starting a maintenance pod: %w", err)
	}
	t.maintainer = ended.Sub(began)
	began = time.Now()
	if err := t.cluster.DeleteAndAwait(ctx, pod); err != nil {
		return err
	}
	unlocked, err := t.cluster.Watch(ctx, &v1.VirtualMachineList{}, t.namespace, cluster.Named(vmName), func(_ watch.EventType, o client.Object) bool {
		vm, ok := o.(*v1.VirtualMachine)
		if !ok {
			return false
		}
		_, locked := lock.Of(vm)
		return !locked && isStopped(vm)
	})
	if err == nil {
		err = <-unlocked
	}
	if err != nil {
		return fmt.Errorf("waiting for the VM to be unlocked: %w", err)
	}
	t.released = time.Since(began)
	return nil
}
