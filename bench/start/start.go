// Package start measures how long a VM takes to start, beside a bare pod of the
// same image and beside QEMU started by hand with the same arguments, by turns in
// one run, since machines are noisy.
//
// The guest's first line is the one that its init prints when its services are
// up; the kernel of the test guest is quiet before.
package start

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/report"
)

// firstLine is what the guest's first line begins with.
const firstLine = "drydock guest ready"

// Options are what can be chosen.
type Options struct {
	rounds int
}

// Flags adds the benchmark's flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.IntVar(&o.rounds, "start-rounds", 7, "start: how often everything is started")
}

// Run measures.
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
	defer hand.forget()
	for i := range o.rounds {
		if err := round(ctx, c, r, hand, place{ns, i}); err != nil {
			return err
		}
	}
	return nil
}

// place is where a round takes place.
type place struct {
	namespace string
	round     int
}

// round starts each of the four once.
func round(ctx context.Context, c *cluster.Cluster, r *report.Report, hand *byHand, at place) error {
	ns, number := at.namespace, strconv.Itoa(at.round)
	pod, err := startPod(ctx, c, ns, "bare-"+number)
	if err != nil {
		return fmt.Errorf("starting a bare pod: %w", err)
	}
	l, err := startVMI(ctx, c, ns, "vmi-"+number)
	if err != nil {
		return fmt.Errorf("starting a VMI: %w", err)
	}
	qemu, err := hand.start(ctx)
	if err != nil {
		return fmt.Errorf("starting QEMU by hand: %w", err)
	}
	vm, err := startVM(ctx, c, ns, "vm-"+number)
	if err != nil {
		return fmt.Errorf("starting a VM: %w", err)
	}
	running, guest := l.running.Sub(l.created), l.guest.Sub(l.created)
	for figure, d := range map[string]time.Duration{
		"pod_running": pod, "qemu_guest": qemu, "vm_running": vm,
		"vmi_running": running, "vmi_guest": guest, "vmi_deleted": l.deleted,
		"vmi_running_minus_pod":            running - pod,
		"vmi_guest_minus_qemu_and_pod":     guest - qemu - pod,
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
	r.Logf("pod %.2f s; VMI running %.2f s, guest %.2f s; QEMU by hand %.2f s; VM running %.2f s",
		pod.Seconds(), running.Seconds(), guest.Seconds(), qemu.Seconds(), vm.Seconds())
	return nil
}

func startPod(ctx context.Context, c *cluster.Cluster, ns, name string) (time.Duration, error) {
	pod := cluster.BarePod(ns, name)
	began, ended, err := c.CreateAndAwait(ctx, pod, &corev1.PodList{}, func(o client.Object) bool {
		p, ok := o.(*corev1.Pod)
		return ok && p.Status.Phase == corev1.PodRunning
	})
	if err != nil {
		return 0, err
	}
	return ended.Sub(began), c.DeleteAndAwait(ctx, pod)
}

func startVM(ctx context.Context, c *cluster.Cluster, ns, name string) (time.Duration, error) {
	vmi := cluster.VMI(ns, name)
	vmi.Spec.TerminationGracePeriodSeconds = new(int64(0))
	vm := cluster.VM(vmi)
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	done, err := c.Follow(ctx, &v1.VirtualMachineInstanceList{}, ns, cluster.Named(name), runs)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := c.Client.Create(ctx, vm); err != nil {
		return 0, fmt.Errorf("creating VM %s: %w", name, err)
	}
	if err := <-done; err != nil {
		return 0, err
	}
	took := time.Since(began)
	if err := c.DeleteAndAwait(ctx, vm); err != nil {
		return 0, err
	}
	return took, c.DeleteAndAwait(ctx, vmi)
}
