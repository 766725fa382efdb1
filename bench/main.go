// Command bench measures the costs of VMs on the embedded cluster: time, requests to the API server, memory, and
// the controllers' work at scale.
//
//	bench -what start,api,idle,memory,hotplug,migrate,snapshot,maintenance,scale,import,up
//
// It owns the list of benchmarks, their cluster and the result files; the packages beside it measure. It uses
// Drydock as any user would. It must leave nothing behind, whether it succeeds, fails or is interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"drydock.dev/drydock/bench/api"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/hotplug"
	"drydock.dev/drydock/bench/idle"
	"drydock.dev/drydock/bench/imports"
	"drydock.dev/drydock/bench/maintenance"
	"drydock.dev/drydock/bench/memory"
	"drydock.dev/drydock/bench/migrate"
	"drydock.dev/drydock/bench/report"
	"drydock.dev/drydock/bench/scale"
	"drydock.dev/drydock/bench/snapshot"
	"drydock.dev/drydock/bench/start"
	"drydock.dev/drydock/bench/up"
	"drydock.dev/drydock/test/shipped"
)

type benchmark struct {
	name string
	// alone measures without a cluster and gets the folder of the programs.
	run   func(context.Context, *cluster.Cluster, *report.Report) error
	alone func(ctx context.Context, programs string, r *report.Report) error
}

type settings struct {
	what        []string
	out         string
	programs    string
	keep        bool
	start       start.Options
	api         api.Options
	idle        idle.Options
	memory      memory.Options
	hotplug     hotplug.Options
	migrate     migrate.Options
	snapshot    snapshot.Options
	maintenance maintenance.Options
	scale       scale.Options
	imports     imports.Options
}

// benchmarks returns all benchmarks in order: those without a cluster first, idle memory before the
// cluster has worked, and the one that stops the cluster last.
func benchmarks(s settings) []benchmark {
	return []benchmark{
		{name: "import", alone: s.imports.Run},
		{name: "memory", run: s.memory.Run},
		{name: "start", run: s.start.Run},
		{name: "hotplug", run: s.hotplug.Run},
		{name: "migrate", run: s.migrate.Run},
		{name: "snapshot", run: s.snapshot.Run},
		{name: "maintenance", run: s.maintenance.Run},
		{name: "api", run: s.api.Run},
		{name: "idle", run: s.idle.Run},
		{name: "scale", run: s.scale.Run},
		{name: "up", run: up.Run},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctrl.SetLogger(klog.NewKlogr())
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1) // the deferred stop is not needed
	}
}

func parse(args []string) (settings, error) {
	s := settings{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	what := flags.String("what", "", "benchmarks to run, with commas between them; empty for all")
	flags.StringVar(&s.out, "o", "bench/results.json", "file for the results")
	flags.StringVar(&s.programs, "programs", "bin", "folder of the built programs")
	flags.BoolVar(&s.keep, "keep", false, "leave the cluster running for the next call")
	s.start.Flags(flags)
	s.api.Flags(flags)
	s.idle.Flags(flags)
	s.memory.Flags(flags)
	s.hotplug.Flags(flags)
	s.migrate.Flags(flags)
	s.snapshot.Flags(flags)
	s.maintenance.Flags(flags)
	s.scale.Flags(flags)
	s.imports.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	var err error
	s.what, err = choose(*what, benchmarks(s))
	return s, err
}

func choose(what string, all []benchmark) ([]string, error) {
	var names []string
	for _, b := range all {
		names = append(names, b.name)
	}
	if what == "" {
		return names, nil
	}
	chosen := strings.Split(what, ",")
	for _, name := range chosen {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("there is no benchmark %q: those there are, are %s", name, strings.Join(names, ", "))
		}
	}
	return chosen, nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	s, err := parse(args)
	if err != nil {
		return err
	}
	chosen := slices.DeleteFunc(benchmarks(s), func(b benchmark) bool { return !slices.Contains(s.what, b.name) })
	if err := shipped.OnPath(); err != nil {
		return err
	}
	r := report.New(out)
	describeMachine(ctx, r)
	session := &session{settings: s, report: r}
	defer func() { err = errors.Join(err, session.end(ctx)) }()
	// After a failure the other benchmarks still run.
	for _, b := range chosen {
		err = errors.Join(err, session.measure(ctx, b))
		if ctx.Err() != nil {
			return errors.Join(fmt.Errorf("the run was interrupted while measuring %s", b.name), err)
		}
	}
	return errors.Join(err, r.Table())
}

// session is one run and its cluster, which starts with the first benchmark that needs one.
type session struct {
	settings
	report  *report.Report
	begun   bool
	cluster *cluster.Cluster
}

// Figures are written even if the benchmark fails halfway.
func (s *session) measure(ctx context.Context, b benchmark) error {
	if b.alone == nil {
		if err := s.connect(ctx); err != nil {
			return err
		}
	}
	s.report.Logf("\n== %s", b.name)
	began := time.Now()
	var err error
	if b.alone != nil {
		err = b.alone(ctx, s.programs, s.report)
	} else {
		err = b.run(ctx, s.cluster, s.report)
	}
	if err != nil {
		err = fmt.Errorf("measuring %s: %w", b.name, err)
		s.report.Logf("%v", err)
	}
	s.report.Logf("%s took %v", b.name, time.Since(began).Round(time.Second))
	return errors.Join(err, s.report.Write(s.out))
}

func (s *session) connect(ctx context.Context) error {
	if s.cluster != nil {
		return nil
	}
	if s.begun {
		return errors.New("there is no cluster to measure")
	}
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		return errors.New("KUBECONFIG is not set: run this by make bench, which names a cluster of its own")
	}
	s.begun = true
	if err := cluster.Up(ctx, s.programs); err != nil {
		return err
	}
	c, err := cluster.Connect(kubeconfig, s.programs)
	if err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("asking for the API server's version: %w", err)
	}
	version, err := client.ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for the API server's version: %w", err)
	}
	nodes, err := c.Run(ctx, "drydock", "kubectl", "get", "nodes", "-o", "jsonpath={.items[0].status.nodeInfo.containerRuntimeVersion} {.items[*].metadata.labels.drydock\\.dev/kvm}")
	if err != nil {
		return err
	}
	runtimeVersion, kvm, _ := strings.Cut(nodes, " ")
	usesKVM := slices.Contains(strings.Fields(kvm), "usable")
	s.report.Machine.KVM = &usesKVM
	s.report.Versions["kubernetes"] = version.GitVersion
	s.report.Versions["containerd"] = runtimeVersion
	s.report.Logf("Kubernetes %s, %s, KVM %t", version.GitVersion, runtimeVersion, usesKVM)
	s.cluster = c
	return nil
}

// end stops the cluster, even after an interrupt.
func (s *session) end(ctx context.Context) error {
	if !s.begun || s.keep {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cluster.Patience)
	defer cancel()
	return cluster.Down(ctx, s.programs)
}
