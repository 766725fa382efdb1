// Package migrate measures the duration and the downtime of a live migration. The unavoidable parts
// are measured interleaved in the same run, because machines are noisy: a bare pod with
// the VMI's claim, and a migration between two QEMUs without Kubernetes with the same arguments,
// capabilities and parameters. Many migrations at once are compared with the time that their bandwidth
// allows.
//
// The guest's downtime is virt-handler's metric; the baseline's is the time between QEMU's events STOP
// at the source and RESUME at the target.
//
// It must not test whether migrations are correct.
package migrate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"time"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/interleave"
	"drydock.dev/drydock/bench/report"
)

// Options are the benchmark's options.
type Options struct {
	rounds, atOnce, bandwidth int
}

// Flags adds the benchmark's flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.IntVar(&o.rounds, "migrate-rounds", 9, "migrate: how often a guest is migrated")
	f.IntVar(&o.atOnce, "migrate-at-once", 10, "migrate: how many guests are migrated at once; 0 for none")
	f.IntVar(&o.bandwidth, "migrate-at-once-bandwidth", 4, "migrate: MiB in a second that each of those may send")
}

// Run runs the benchmark.
func (o *Options) Run(ctx context.Context, c *cluster.Cluster, r *report.Report) error {
	if err := o.compare(ctx, c, r); err != nil {
		return err
	}
	if o.atOnce == 0 {
		return nil
	}
	if err := o.measureAtOnce(ctx, c, r); err != nil {
		return fmt.Errorf("migrating %d guests at once: %w", o.atOnce, err)
	}
	return nil
}

func (o *Options) compare(ctx context.Context, c *cluster.Cluster, r *report.Report) (err error) {
	ns, remove, err := c.NewNamespace(ctx)
	if err != nil {
		return err
	}
	defer remove()
	s, err := prepare(ctx, c, ns, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	for i := range o.rounds + 1 {
		t := &round{setting: s, number: i}
		if err := interleave.Run(ctx, i, t.startPod, t.moveBaseline, t.moveVMI); err != nil {
			return fmt.Errorf("in round %d: %w", i, err)
		}
		if i > 0 { // the first round has cold caches
			total, told := t.vmi.course.total(), t.vmi.told
			for figure, d := range map[string]time.Duration{
				"total": total, "pod_running": t.pod, "qemu": t.bare.total, "qemu_start": t.bare.start, "source_gone": t.vmi.gone,
				"total_minus_qemu": total - t.bare.total, "total_minus_qemu_and_pod": total - t.bare.total - t.pod,
			} {
				r.Add("migrate."+figure+"_s", "s", d.Seconds())
			}
			for stage, d := range t.vmi.course.durations() {
				r.Add("migrate."+stage+"_s", "s", d.Seconds())
			}
			r.Add("migrate.transfer_s", "s", told.duration)
			r.Add("migrate.downtime_ms", "ms", told.downtime*inMs)
			r.Add("migrate.qemu_downtime_ms", "ms", t.bare.downtime.Seconds()*inMs)
			r.Add("migrate.downtime_ratio", "ratio", told.downtime/t.bare.downtime.Seconds())
			r.Add("migrate.sent_mib", "MiB", told.sent/mib)
			r.Add("migrate.qemu_sent_mib", "MiB", t.bare.sent/mib)
			r.Add("migrate.writes", "requests", float64(t.vmi.writes))
			r.Add("migrate.writes_all", "requests", float64(t.vmi.all))
			r.Logf("bare pod %.2f s; QEMU to QEMU %.2f s, %.0f ms of them still; VMI %.2f s, of them transferred %.2f s, still %.0f ms; %d writes",
				t.pod.Seconds(), t.bare.total.Seconds(), t.bare.downtime.Seconds()*inMs, total.Seconds(), told.duration, told.downtime*inMs, t.vmi.writes)
		}
	}
	return nil
}

type round struct {
	*setting
	number int

	pod  time.Duration
	bare bare
	vmi  moved
}

func (t *round) startPod(ctx context.Context) (err error) {
	if t.pod, err = t.cluster.TimePod(ctx, t.barePod("bare-"+strconv.Itoa(t.number))); err != nil {
		return fmt.Errorf("starting a bare pod with the claim: %w", err)
	}
	return nil
}

func (t *round) moveBaseline(ctx context.Context) (err error) {
	t.bare, err = t.migrateBaseline(ctx, t.number)
	return err
}

func (t *round) moveVMI(ctx context.Context) (err error) {
	if t.vmi, err = t.migrateVMI(ctx, "move-"+strconv.Itoa(t.number)); err != nil {
		return fmt.Errorf("migrating the VMI: %w", err)
	}
	return nil
}

const (
	mib  = 1 << 20
	inMs = 1000
)
