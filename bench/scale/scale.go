package scale

import (
	"context"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/report"
)

// Options are the benchmark's options.
type Options struct {
	sizes   string
	rest    time.Duration
	rate    int
	atRate  int
	nicVMs  int
	profile string
}

// Flags adds the benchmark's flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.StringVar(&o.sizes, "scale-sizes", "100,500,1000,5000", "scale: numbers of VMIs, with commas between them")
	f.DurationVar(&o.rest, "scale-rest", 5*time.Minute, "scale: how long nothing happens when the largest number runs; with the others it is a tenth")
	f.IntVar(&o.rate, "scale-rate", 10, "scale: VMIs created in a second where that is fixed")
	f.IntVar(&o.atRate, "scale-rate-vmis", 1000, "scale: how many are created at that rate; 0 for none")
	f.IntVar(&o.nicVMs, "scale-nic-vms", 100, "scale: VMs whose NICs are changed; 0 for none")
	f.StringVar(&o.profile, "scale-profile", "", "scale: folder for virt-controller's CPU and heap profiles (it is deployed with --pprof-addr for it)")
}

// restartFrom is the smallest number of VMIs with which a restart is measured.
const restartFrom = 1000

func (o *Options) numbers() ([]int, error) {
	var out []int
	for text := range strings.SplitSeq(o.sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("reading --scale-sizes: %q is not a number of VMIs", text)
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return out, nil
}

// Run runs the benchmark.
func (o *Options) Run(ctx context.Context, c *cluster.Cluster, r *report.Report) error {
	sizes, err := o.numbers()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	nodes, err := simulateNodes(ctx, c, max(sizes[len(sizes)-1], o.atRate, o.nicVMs))
	if err != nil {
		return fmt.Errorf("simulating nodes: %w", err)
	}
	defer nodes.remove()
	if o.profile != "" {
		if err := openProfiler(ctx, c); err != nil {
			return err
		}
	}
	var costs []cost
	for i, n := range sizes {
		p := &pass{Options: o, cluster: c, report: r, n: n, restFor: o.rest / 10}
		if i == len(sizes)-1 {
			p.restFor = o.rest
		}
		perVMI, err := p.lives(ctx)
		if err != nil {
			return fmt.Errorf("measuring %d VMIs: %w", n, err)
		}
		costs = append(costs, cost{n, perVMI})
	}
	if len(costs) > 1 {
		r.Add("scale.cost_exponent", "exponent", exponent(costs))
	}
	first, last := at(costs, 500), at(costs, 5000)
	if first > 0 && last > 0 {
		r.Add("scale.cost_5000_over_500", "ratio", last/first)
	}
	if o.atRate > 0 {
		p := &pass{Options: o, cluster: c, report: r, n: o.atRate}
		if err := p.within(ctx, p.measureRate); err != nil {
			return fmt.Errorf("measuring %d VMIs at a fixed rate: %w", p.n, err)
		}
	}
	if o.nicVMs > 0 {
		err := o.measureNICs(ctx, c, func(all *rollout) error {
			all.pass = &pass{Options: o, cluster: c, report: r, n: o.nicVMs}
			return all.within(ctx, all.measure)
		})
		if err != nil {
			return fmt.Errorf("changing the NICs of %d VMs: %w", o.nicVMs, err)
		}
	}
	return nil
}

// cost is per VMI, in milliseconds.
type cost struct {
	n      int
	perVMI float64
}

// exponent returns the growth of the total cost with n, the slope of the regression line of the
// logarithms. 1 means that the cost per VMI does not depend on n.
func exponent(costs []cost) float64 {
	var sx, sy, sxx, sxy float64
	for _, c := range costs {
		x, y := math.Log(float64(c.n)), math.Log(c.perVMI*float64(c.n))
		sx, sy, sxx, sxy = sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	count := float64(len(costs))
	return (count*sxy - sx*sy) / (count*sxx - sx*sx)
}

func at(costs []cost, n int) float64 {
	for _, c := range costs {
		if c.n == n {
			return c.perVMI
		}
	}
	return 0
}

func (o *Options) profilePath(kind string, n int) string {
	return filepath.Join(o.profile, fmt.Sprintf("virt-controller-%s-%d.pprof", kind, n))
}
