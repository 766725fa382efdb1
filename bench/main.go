// Command bench measures what a VM costs on the embedded cluster: time, requests
// to the API server, memory, and the controllers' work when there are many.
//
//	bench -what start,api,memory,scale,up
//
// It owns the list of benchmarks and the files of results. What is measured, and
// how, is in the packages beside it. It changes nothing in Drydock: it uses it as
// anybody would. It is run by hack/bench, which starts the cluster.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"drydock.dev/drydock/bench/api"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/memory"
	"drydock.dev/drydock/bench/report"
	"drydock.dev/drydock/bench/scale"
	"drydock.dev/drydock/bench/start"
	"drydock.dev/drydock/bench/up"
)

// benchmark is one part of what can be measured.
type benchmark struct {
	name string
	run  func(context.Context, *cluster.Cluster, *report.Report) error
}

// settings are the command's flags.
type settings struct {
	what []string
	out  string
	// programs is the folder of the built programs.
	programs string
	start    start.Options
	api      api.Options
	memory   memory.Options
	scale    scale.Options
}

// benchmarks are all there are, in the order in which they run: what is idle is
// measured before the cluster has worked, and what stops it comes last.
func benchmarks(s settings) []benchmark {
	return []benchmark{
		{"memory", s.memory.Run},
		{"start", s.start.Run},
		{"api", s.api.Run},
		{"scale", s.scale.Run},
		{"up", up.Run},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(klog.NewKlogr())
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1) //nolint:gocritic // the process ends; nothing is left to stop
	}
}

func parse(args []string) (settings, error) {
	s := settings{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	what := flags.String("what", "", "benchmarks to run, with commas between them; empty for all")
	flags.StringVar(&s.out, "o", "bench/results.json", "file for the results")
	flags.StringVar(&s.programs, "programs", "bin", "folder of the built programs")
	s.start.Flags(flags)
	s.api.Flags(flags)
	s.memory.Flags(flags)
	s.scale.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	var err error
	s.what, err = choose(*what, benchmarks(s))
	return s, err
}

// choose refuses what there is no benchmark for.
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

func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	c, err := cluster.Connect(os.Getenv("KUBECONFIG"), s.programs)
	if err != nil {
		return err
	}
	r := report.New(out)
	if err := describe(ctx, c, r); err != nil {
		return err
	}
	for _, b := range benchmarks(s) {
		if !slices.Contains(s.what, b.name) {
			continue
		}
		r.Logf("\n== %s", b.name)
		if err := b.run(ctx, c, r); err != nil {
			return fmt.Errorf("measuring %s: %w", b.name, err)
		}
		// What was measured is kept even when a later benchmark fails.
		if err := r.Write(s.out); err != nil {
			return err
		}
	}
	return r.Table()
}
