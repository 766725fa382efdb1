package scale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/audit"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/proc"
	"drydock.dev/drydock/bench/report"
)

const (
	users        = 16
	passPatience = 15 * time.Minute
	profileTime  = 15 * time.Second
)

type pass struct {
	*Options
	cluster *cluster.Cluster
	report  *report.Report
	n       int
	restFor time.Duration

	namespace       string
	agent           *agent
	controller, api component
	apiServer       int
	before          resident
}

// resident is in KiB.
type resident struct{ controller, api int }

func (p *pass) resident() (resident, error) {
	controller, err := proc.MemoryOf(p.controller.pid)
	if err != nil {
		return resident{}, err
	}
	api, err := proc.MemoryOf(p.api.pid)
	return resident{controller.RSS, api.RSS}, err
}

type spent struct {
	controller, api, apiServer time.Duration
}

func (s spent) minus(o spent) spent {
	return spent{s.controller - o.controller, s.api - o.api, s.apiServer - o.apiServer}
}

func (s spent) plus(o spent) spent {
	return spent{s.controller + o.controller, s.api + o.api, s.apiServer + o.apiServer}
}

// within measures in a separate namespace, with an agent and fresh components.
func (p *pass) within(ctx context.Context, measure func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 3*passPatience)
	defer cancel()
	remove, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	defer func() {
		remove()
		cancel()
		p.agent.wait()
	}()
	return measure(ctx)
}

// lives returns virt-controller's CPU time per VMI in milliseconds.
func (p *pass) lives(ctx context.Context) (float64, error) {
	var life spent
	err := p.within(ctx, func(ctx context.Context) error {
		began := time.Now()
		creation, err := p.during(ctx, p.create)
		if err != nil {
			return err
		}
		if err := p.measureRest(ctx); err != nil {
			return err
		}
		if p.n >= restartFrom {
			if err := p.measureRestart(ctx); err != nil {
				return err
			}
		}
		deletion, err := p.during(ctx, p.delete)
		if err != nil {
			return err
		}
		life = creation.plus(deletion)
		p.add("creation_cpu_ms_per_vmi", "ms", p.perVMI(creation.controller))
		requests, err := p.cluster.RequestsSince(ctx, began)
		if errors.Is(err, audit.ErrRotated) {
			p.report.Logf("the requests of %d lives are not counted: %v", p.n, err)
			return nil
		}
		if err != nil {
			return err
		}
		p.add("writes_per_vmi", "requests", float64(audit.Count(requests, audit.Write))/float64(p.n))
		p.add("reads_per_vmi", "requests", float64(audit.Count(requests, audit.Read)+audit.Count(requests, audit.List))/float64(p.n))
		for _, line := range audit.Sums(requests) {
			p.report.Logf("in the lives of %d: %s", p.n, line)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	p.add("cpu_ms_per_vmi", "ms", p.perVMI(life.controller))
	p.add("api_cpu_ms_per_vmi", "ms", p.perVMI(life.api))
	p.add("kube_apiserver_cpu_ms_per_vmi", "ms", p.perVMI(life.apiServer))
	p.report.Logf("%d VMIs: %.2f ms of virt-controller, %.2f ms of virt-api, %.2f ms of kube-apiserver for each",
		p.n, p.perVMI(life.controller), p.perVMI(life.api), p.perVMI(life.apiServer))
	return p.perVMI(life.controller), nil
}

func (p *pass) add(name, unit string, value float64) {
	p.report.Add(fmt.Sprintf("scale.%s_%d", name, p.n), unit, value)
}

func (p *pass) perVMI(d time.Duration) float64 { return d.Seconds() * 1000 / float64(p.n) }

func (p *pass) prepare(ctx context.Context) (remove func(), err error) {
	if p.api, err = anew(ctx, p.cluster, "virt-api", admits); err != nil {
		return nil, err
	}
	if p.controller, err = anew(ctx, p.cluster, "virt-controller", leads); err != nil {
		return nil, err
	}
	status, err := p.cluster.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, program := range status.ControlPlane {
		if program.Name == "kube-apiserver" {
			p.apiServer = program.PID
		}
	}
	if p.namespace, remove, err = p.cluster.NewNamespace(ctx); err != nil {
		return nil, err
	}
	if p.agent, err = startAgent(ctx, p.cluster, p.namespace); err != nil {
		remove()
		return nil, err
	}
	err = p.quiet(ctx)
	if err == nil {
		p.before, err = p.resident()
	}
	return remove, err
}

func (p *pass) used() (spent, error) {
	var s spent
	for pid, to := range map[int]*time.Duration{p.controller.pid: &s.controller, p.api.pid: &s.api, p.apiServer: &s.apiServer} {
		var err error
		if *to, err = proc.CPU(pid); err != nil {
			return s, err
		}
	}
	return s, nil
}

// during returns the CPU time of do, until all is quiet again.
func (p *pass) during(ctx context.Context, do func(context.Context) error) (spent, error) {
	before, err := p.used()
	if err != nil {
		return spent{}, err
	}
	if err := do(ctx); err != nil {
		return spent{}, err
	}
	if err := p.quiet(ctx); err != nil {
		return spent{}, err
	}
	after, err := p.used()
	return after.minus(before), err
}

// virt-controller must use at most one per cent of a CPU for two seconds.
func (p *pass) quiet(ctx context.Context) error {
	const window = 2 * time.Second
	for {
		before, err := proc.CPU(p.controller.pid)
		if err != nil {
			return err
		}
		if err := wait(ctx, window); err != nil {
			return fmt.Errorf("waiting for virt-controller to come to rest: %w", err)
		}
		after, err := proc.CPU(p.controller.pid)
		if err != nil {
			return err
		}
		if after-before <= window/100 {
			return nil
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// create creates all VMIs as fast as the API server permits and waits until all run.
func (p *pass) create(ctx context.Context) error {
	began := time.Now()
	defer p.profiled(ctx, "creation")()
	err := p.all(ctx, func(ctx context.Context, name string) error { return p.cluster.Client.Create(ctx, p.vmi(name)) })
	if err != nil {
		return fmt.Errorf("creating VMIs: %w", err)
	}
	p.add("created_s", "s", time.Since(began).Seconds())
	if err := p.agent.await(ctx, "running", p.n, running); err != nil {
		return err
	}
	p.add("all_running_s", "s", time.Since(began).Seconds())
	p.report.Logf("%d VMIs run %.1f s after the first was created", p.n, time.Since(began).Seconds())
	return nil
}

// profiled starts a CPU profile if profiles are enabled. The returned function waits for it.
func (p *pass) profiled(ctx context.Context, what string) func() {
	if p.profile == "" {
		return func() {}
	}
	taken := make(chan error, 1)
	go func() { taken <- profile(ctx, p.cluster, p.controller, "cpu", p.profilePath(what, p.n), profileTime) }()
	return func() { p.logProblem(<-taken) }
}

func (p *pass) logProblem(err error) {
	if err != nil {
		p.report.Logf("no profile: %v", err)
	}
}

func (p *pass) delete(ctx context.Context) error {
	defer p.profiled(ctx, "deletion")()
	err := p.all(ctx, func(ctx context.Context, name string) error {
		return client.IgnoreNotFound(p.cluster.Client.Delete(ctx, p.vmi(name)))
	})
	if err != nil {
		return fmt.Errorf("deleting VMIs: %w", err)
	}
	return p.agent.await(ctx, "gone", p.n, gone)
}

func (p *pass) all(ctx context.Context, do func(context.Context, string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(users)
	for i := range p.n {
		group.Go(func() error { return do(ctx, nameOf(i)) })
	}
	return group.Wait()
}

func nameOf(number int) string { return fmt.Sprintf("vmi-%d", number) }

func (p *pass) vmi(name string) *v1.VirtualMachineInstance {
	vmi := cluster.VMI(p.namespace, name)
	vmi.Spec.NodeSelector = map[string]string{cluster.SimulatedLabel: "true"}
	vmi.Spec.Tolerations = []corev1.Toleration{{Key: cluster.SimulatedLabel, Operator: corev1.TolerationOpExists}}
	return vmi
}

func (p *pass) measureRest(ctx context.Context) error {
	memory, err := p.resident()
	if err != nil {
		return err
	}
	p.add("rss_kib_per_vmi", "KiB", float64(memory.controller-p.before.controller)/float64(p.n))
	p.add("api_rss_kib_per_vmi", "KiB", float64(memory.api-p.before.api)/float64(p.n))
	if p.profile != "" {
		p.logProblem(profile(ctx, p.cluster, p.controller, "heap", p.profilePath("heap", p.n), 0))
	}
	began := time.Now()
	used, err := p.used()
	if err != nil {
		return err
	}
	if err := wait(ctx, p.restFor); err != nil {
		return err
	}
	now, err := p.used()
	if err != nil {
		return err
	}
	used = now.minus(used)
	requests, err := p.cluster.RequestsSince(ctx, began)
	if err != nil {
		return err
	}
	p.add("rest_s", "s", p.restFor.Seconds())
	p.add("rest_writes", "requests", float64(audit.Count(requests, audit.Write)))
	p.add("rest_cpu_ms_per_s", "ms", used.controller.Seconds()*1000/p.restFor.Seconds())
	return nil
}

func (p *pass) measureRestart(ctx context.Context) error {
	began := time.Now()
	now, err := kill(ctx, p.cluster, p.controller)
	if err != nil {
		return err
	}
	p.controller = now
	started, err := proc.Started(now.pid)
	if err != nil {
		return err
	}
	if err := caughtUp(ctx, p.cluster, now, p.n); err != nil {
		return err
	}
	ready := time.Now()
	if err := p.quiet(ctx); err != nil {
		return err
	}
	requests, err := p.cluster.RequestsSince(ctx, began)
	if err != nil {
		return err
	}
	cpu, err := proc.CPU(now.pid)
	if err != nil {
		return err
	}
	memory, err := proc.MemoryOf(now.pid)
	if err != nil {
		return err
	}
	p.add("restart_ready_s", "s", ready.Sub(started).Seconds())
	p.add("restart_from_kill_s", "s", ready.Sub(began).Seconds())
	p.add("restart_writes", "requests", float64(audit.Count(aboutVMs(requests), audit.Write)))
	p.add("restart_cpu_s", "s", cpu.Seconds())
	p.add("restart_rss_mib", "MiB", float64(memory.RSS)/1024)
	for _, line := range audit.Sums(requests) {
		p.report.Logf("after the restart: %s", line)
	}
	return nil
}

// aboutVMs drops the writes of the KubeVirt object's status, which reports that virt-controller is
// away and back, once each for any number of VMIs.
func aboutVMs(requests []audit.Request) []audit.Request {
	return slices.DeleteFunc(slices.Clone(requests), func(r audit.Request) bool { return r.Resource == "kubevirts/status" })
}
