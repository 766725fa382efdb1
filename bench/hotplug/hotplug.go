// Package hotplug measures the time to plug a volume into a running guest and to unplug it, interleaved with the
// unavoidable parts, because machines are noisy: a bare pod with the claim, and QEMU's own device_add.
//
// A shell in the guest polls for the disk fifty times a second, for VMI and baseline alike.
//
// It must not test whether hotplug is correct.
package hotplug

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/interleave"
	"drydock.dev/drydock/bench/report"
	virtctl "drydock.dev/drydock/internal/virtctl/client"
)

// Options are the benchmark's options.
type Options struct {
	rounds int
}

// Flags adds the benchmark's flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.IntVar(&o.rounds, "hotplug-rounds", 13, "hotplug: how often a volume is plugged and unplugged")
}

const volume = "vol"

// Run runs the benchmark.
func (o *Options) Run(ctx context.Context, c *cluster.Cluster, r *report.Report) (err error) {
	ns, remove, err := c.NewNamespace(ctx)
	if err != nil {
		return err
	}
	defer remove()
	s, err := prepare(ctx, c, ns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	for i := range o.rounds + 1 {
		t := &round{setting: s, number: i}
		if err := t.run(ctx); err != nil {
			return fmt.Errorf("in turn %d: %w", i, err)
		}
		// In the first round the claim is empty and all caches are cold.
		if i > 0 {
			base := t.pod + t.deviceAdd
			r.Add("hotplug.add_ratio", "ratio", t.seen.Seconds()/base.Seconds())
			for figure, d := range map[string]time.Duration{
				"pod_running": t.pod, "device_add": t.deviceAdd,
				"add_seen": t.seen, "add_ready": t.ready, "remove": t.out, "cycle": t.cycle,
			} {
				r.Add("hotplug."+figure+"_s", "s", d.Seconds())
			}
			r.Logf("bare pod %.2f s, device_add %.2f s; added %.2f s until the guest saw it, %.2f s until Ready; gone %.2f s after it was removed",
				t.pod.Seconds(), t.deviceAdd.Seconds(), t.seen.Seconds(), t.ready.Seconds(), t.out.Seconds())
		}
	}
	return nil
}

type round struct {
	*setting
	number int

	pod, deviceAdd          time.Duration
	seen, ready, out, cycle time.Duration
}

func (t *round) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*cluster.Patience)
	defer cancel()
	return interleave.Run(ctx, t.number, t.startPod, t.plugBaseline, t.plug)
}

func (t *round) startPod(ctx context.Context) error {
	took, err := t.cluster.TimePod(ctx, t.barePod("bare-"+strconv.Itoa(t.number)))
	if err != nil {
		return fmt.Errorf("starting a bare pod with the claim: %w", err)
	}
	t.pod = took
	return nil
}

func (t *round) plugBaseline(ctx context.Context) error {
	if err := t.baseline.watch(ctx, true); err != nil {
		return err
	}
	began := time.Now()
	if err := t.addDevice(ctx); err != nil {
		return fmt.Errorf("plugging a disk into the baseline: %w", err)
	}
	if err := t.baseline.saw(ctx); err != nil {
		return err
	}
	t.deviceAdd = time.Since(began)
	if err := t.removeDevice(ctx); err != nil {
		return fmt.Errorf("unplugging a disk into the baseline: %w", err)
	}
	return nil
}

func (t *round) plug(ctx context.Context) error {
	if err := t.guest.watch(ctx, true); err != nil {
		return err
	}
	began := time.Now()
	ready, err := t.watch(ctx, func(s *v1.VolumeStatus) bool { return s != nil && s.Phase == v1.VolumeReady })
	if err != nil {
		return err
	}
	if err := t.client.Put(ctx, t.ref(), "addvolume", &v1.AddVolumeOptions{
		Name: volume,
		Disk: &v1.Disk{Name: volume, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}},
		VolumeSource: &v1.HotplugVolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume},
			Hotpluggable:                      true,
		}},
	}); err != nil {
		return fmt.Errorf("adding the volume: %w", err)
	}
	if err := t.guest.saw(ctx); err != nil {
		return fmt.Errorf("waiting for the volume in the guest, which is %s: %w", t.phase(ctx), err)
	}
	t.seen = time.Since(began)
	at, err := ready()
	if err != nil {
		return fmt.Errorf("waiting for the volume to be Ready: %w", err)
	}
	t.ready = at.Sub(began)
	removed := time.Now()
	gone, err := t.watch(ctx, func(s *v1.VolumeStatus) bool { return s == nil })
	if err != nil {
		return err
	}
	if err := t.client.Put(ctx, t.ref(), "removevolume", &v1.RemoveVolumeOptions{Name: volume}); err != nil {
		return fmt.Errorf("removing the volume: %w", err)
	}
	if at, err = gone(); err != nil {
		return fmt.Errorf("waiting for the volume to be gone: %w", err)
	}
	t.out, t.cycle = at.Sub(removed), at.Sub(began)
	return t.guest.lost(ctx)
}

func (t *round) ref() virtctl.Ref {
	return virtctl.Ref{Resource: virtctl.VirtualMachineInstances, Namespace: t.namespace, Name: guestName}
}

// The returned function returns the time at which the wanted status was observed.
func (t *round) watch(ctx context.Context, wanted func(*v1.VolumeStatus) bool) (func() (time.Time, error), error) {
	var at time.Time
	done, err := t.cluster.Watch(ctx, &v1.VirtualMachineInstanceList{}, t.namespace, cluster.Named(guestName), func(_ watch.EventType, o client.Object) bool {
		at = time.Now()
		return wanted(statusOf(o.(*v1.VirtualMachineInstance)))
	})
	return func() (time.Time, error) {
		err := <-done
		return at, err
	}, err
}

func (t *round) phase(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cluster.Patience)
	defer cancel()
	var vmi v1.VirtualMachineInstance
	if err := t.cluster.Client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: guestName}, &vmi); err != nil {
		return err.Error()
	}
	s := statusOf(&vmi)
	if s == nil {
		return "in no status"
	}
	return fmt.Sprintf("%s (%s)", s.Phase, s.Message)
}

// statusOf returns the status of the volume, nil if there is none.
func statusOf(vmi *v1.VirtualMachineInstance) *v1.VolumeStatus {
	for i := range vmi.Status.VolumeStatus {
		if vmi.Status.VolumeStatus[i].Name == volume {
			return &vmi.Status.VolumeStatus[i]
		}
	}
	return nil
}
