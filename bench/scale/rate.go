package scale

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
)

// measureRate creates VMIs at a fixed rate, regardless of the state of earlier ones, and measures
// the time until each runs: a user's wait while others work.
func (p *pass) measureRate(ctx context.Context) error {
	began := time.Now()
	var created map[types.UID]time.Time
	used, err := p.during(ctx, func(ctx context.Context) (err error) {
		if created, err = p.createAtRate(ctx); err != nil {
			return fmt.Errorf("creating VMIs: %w", err)
		}
		return p.agent.await(ctx, "running", p.n, running)
	})
	if err != nil {
		return err
	}
	var last time.Time
	for uid, at := range created {
		ran := p.agent.ranAt(uid)
		p.add("running_at_rate_s", "s", ran.Sub(at).Seconds())
		if ran.After(last) {
			last = ran
		}
	}
	p.add("all_running_at_rate_s", "s", last.Sub(began).Seconds())
	p.add("creation_cpu_ms_per_vmi_at_rate", "ms", p.perVMI(used.controller))
	p.report.Logf("%d VMIs, %d of them created in a second: the last ran after %.1f s; %.2f ms of virt-controller for each creation",
		p.n, p.rate, last.Sub(began).Seconds(), p.perVMI(used.controller))
	return p.delete(ctx)
}

func (p *pass) createAtRate(ctx context.Context) (map[types.UID]time.Time, error) {
	created := map[types.UID]time.Time{}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	tick := time.NewTicker(time.Second / time.Duration(p.rate))
	defer tick.Stop()
	for i := range p.n {
		group.Go(func() error {
			vmi, at := p.vmi(nameOf(i)), time.Now()
			if err := p.cluster.Client.Create(ctx, vmi); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			created[vmi.UID] = at
			return nil
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, group.Wait()
		}
	}
	return created, group.Wait()
}
