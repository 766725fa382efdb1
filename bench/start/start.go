// Package start measures how long a VM takes to start, interleaved with a bare pod of the same image, and a QEMU
// outside of Kubernetes with the same arguments, because machines are noisy.
//
// The guest's init prints its first line when its services are up; the test guest's kernel is quiet.
package start

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/bench/baseline"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/interleave"
	"drydock.dev/drydock/bench/proc"
	"drydock.dev/drydock/bench/report"
)

const firstLine = "drydock guest ready"

// Options are the benchmark's options.
type Options struct {
	rounds int
}

// Flags adds the benchmark's flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.IntVar(&o.rounds, "start-rounds", 7, "start: how often everything is started")
}

// Run runs the benchmark.
func (o *Options) Run(ctx context.Context, c *cluster.Cluster, r *report.Report) error {
	ns, remove, err := c.NewNamespace(ctx)
	if err != nil {
		return err
	}
	defer remove()
	hand, err := learn(ctx, c, ns)
	if err != nil {
		return fmt.Errorf("learning how QEMU is started: %w", err)
	}
	for i := range o.rounds {
		t := &round{cluster: c, namespace: ns, number: strconv.Itoa(i), baseline: hand}
		if err := interleave.Run(ctx, i, t.startPod, t.startVMI, t.startBaseline, t.startVM); err != nil {
			return errors.Join(err, hand.Forget())
		}
		l := t.vmi
		running, guest := l.running.Sub(l.created), l.guest.Sub(l.created)
		for figure, d := range map[string]time.Duration{
			"pod_running": t.pod, "qemu_guest": t.qemu.wall, "vm_running": t.vm,
			"vmi_running": running, "vmi_guest": guest, "vmi_deleted": l.deleted,
			"vmi_running_minus_pod":            running - t.pod,
			"vmi_guest_minus_qemu_and_pod":     guest - t.qemu.wall - t.pod,
			"vmi_guest_cpu_minus_qemu":         l.cpu - t.qemu.cpu,
			"vmi_qemu_started_minus_pod":       l.qemu.Sub(l.created) - t.pod,
			"stage_1_created_to_pod":           l.pod.Sub(l.created),
			"stage_2_pod_to_bound":             l.bound.Sub(l.pod),
			"stage_3_bound_to_launcher":        l.launcher.Sub(l.bound),
			"stage_4_launcher_to_qemu":         l.qemu.Sub(l.launcher),
			"stage_5_qemu_to_running":          l.running.Sub(l.qemu),
			"stage_6_running_to_guest":         l.guest.Sub(l.running),
			"stage_guest_after_qemu":           l.guest.Sub(l.qemu),
			"stage_bound_to_scheduled_written": l.scheduled.Sub(l.bound),
		} {
			r.Add("start."+figure+"_s", "s", d.Seconds())
		}
		r.Logf("pod %.2f s; VMI running %.2f s, guest %.2f s (%.2f s of CPU); baseline %.2f s (%.2f s of CPU); VM running %.2f s",
			t.pod.Seconds(), running.Seconds(), guest.Seconds(), l.cpu.Seconds(), t.qemu.wall.Seconds(), t.qemu.cpu.Seconds(), t.vm.Seconds())
	}
	return hand.Forget()
}

// The first VMI also warms up caches.
func learn(ctx context.Context, c *cluster.Cluster, ns string) (*baseline.Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	vmi := cluster.VMI(ns, "learn")
	_, pod, err := observeStart(ctx, c, vmi)
	if err != nil {
		return nil, err
	}
	hand, err := baseline.Learn(ctx, pod)
	return hand, errors.Join(err, c.DeleteAndAwait(ctx, vmi))
}

type round struct {
	cluster           *cluster.Cluster
	namespace, number string
	baseline          *baseline.Machine

	pod, vm time.Duration
	qemu    booted
	vmi     *life
}

type booted struct{ wall, cpu time.Duration }

func (t *round) startBaseline(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	guest, err := t.baseline.Start(ctx)
	if err != nil {
		return err
	}
	defer guest.Stop()
	conn, err := guest.Console(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	ended, err := awaitLine(ctx, conn)
	if err != nil {
		return fmt.Errorf("starting the baseline: %w", err)
	}
	t.qemu.wall = ended.Sub(guest.Began)
	t.qemu.cpu, err = proc.CPU(guest.PID())
	return err
}

func (t *round) startVMI(ctx context.Context) (err error) {
	if t.vmi, err = startVMI(ctx, t.cluster, t.namespace, "vmi-"+t.number); err != nil {
		return fmt.Errorf("starting a VMI: %w", err)
	}
	return nil
}

func (t *round) startPod(ctx context.Context) error {
	pod := cluster.BarePod(t.namespace, "bare-"+t.number)
	took, err := t.cluster.TimePod(ctx, pod)
	if err != nil {
		return fmt.Errorf("starting a bare pod: %w", err)
	}
	t.pod = took
	return nil
}

func (t *round) startVM(ctx context.Context) error {
	vmi := cluster.VMI(t.namespace, "vm-"+t.number)
	vmi.Spec.TerminationGracePeriodSeconds = new(int64(0))
	vm := cluster.VM(vmi)
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	done, err := t.cluster.Watch(ctx, &v1.VirtualMachineInstanceList{}, t.namespace, cluster.Named(vmi.Name), runs)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := t.cluster.Client.Create(ctx, vm); err != nil {
		return fmt.Errorf("creating VM %s: %w", vm.Name, err)
	}
	if err := <-done; err != nil {
		return fmt.Errorf("starting a VM: %w", err)
	}
	t.vm = time.Since(began)
	if err := t.cluster.DeleteAndAwait(ctx, vm); err != nil {
		return err
	}
	return t.cluster.DeleteAndAwait(ctx, vmi)
}
