package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"drydock.dev/drydock/test/guest"
)

type options struct {
	repository string
	// group is empty for all.
	group string
	match *regexp.Regexp
	// listed is the prefix of the listed verdicts of the specs to run.
	listed string
	bound  time.Duration
	write  bool
	// names only compares names, which needs no cluster.
	names bool
}

func parseOptions(args []string) (options, error) {
	var o options
	var match string
	flags := flag.NewFlagSet("upstreamsuite", flag.ContinueOnError)
	flags.StringVar(&o.repository, "repository", ".", "the folder of the repository")
	flags.StringVar(&o.group, "group", "", "the group of specs to run")
	flags.StringVar(&match, "match", "", "an expression for the names of the specs to run")
	flags.StringVar(&o.listed, "listed", "", "how the verdict begins of the specs to run: passed, 'not run', environment")
	flags.DurationVar(&o.bound, "bound", 4*time.Hour, "how long the specs may take")
	flags.BoolVar(&o.write, "write", false, "change the list to what is seen")
	flags.BoolVar(&o.names, "names", false, "compare the specs' names with the list, and run none")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	isGroup := func(g group) bool { return g.name == o.group }
	if o.group != "" && !slices.ContainsFunc(groups, isGroup) {
		var names []string
		for _, g := range groups {
			names = append(names, g.name)
		}
		return o, fmt.Errorf("the suite has no group %q: it has %s", o.group, strings.Join(names, ", "))
	}
	var err error
	if o.match, err = regexp.Compile(match); err != nil {
		return o, fmt.Errorf("reading the expression for the specs' names: %w", err)
	}
	o.repository, err = filepath.Abs(o.repository)
	return o, err
}

func (o options) choose(specs []spec, list []entry) []spec {
	listed := verdicts(list)
	return only(specs, func(s spec) bool {
		return (o.group == "" || groups[s.group()].name == o.group) && o.match.MatchString(s.name) && strings.HasPrefix(listed[s.name], o.listed)
	})
}

func main() {
	o, err := parseOptions(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if err == nil {
		err = o.run(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "upstreamsuite:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) error {
	build := filepath.Join(o.repository, "build", "upstream-suite")
	if err := os.MkdirAll(build, 0o755); err != nil {
		return fmt.Errorf("making the build folder: %w", err)
	}
	w := workshop(build)
	if err := w.build(ctx); err != nil {
		return err
	}
	specs, err := w.specs(ctx)
	if err != nil {
		return err
	}
	listName := filepath.Join(o.repository, "test", "upstreamsuite", "specs.txt")
	list, err := readList(listName)
	if err != nil {
		return err
	}
	wrong := checkNames(list, specs)
	var ran []spec
	if !o.names {
		chosen := o.choose(specs, list)
		if len(chosen) == 0 {
			return errors.New("no spec is as was asked for")
		}
		var more []string
		if ran, more, err = o.runOn(ctx, w, chosen); err != nil {
			return err
		}
		wrong = append(append(wrong, more...), checkOutcomes(list, chosen, ran)...)
	}
	if o.write {
		list = merge(list, specs, ran)
		if err := writeList(listName, list, specs); err != nil {
			return fmt.Errorf("writing the list of specs: %w", err)
		}
	}
	fmt.Print(tally(list, specs))
	if len(wrong) > 0 {
		return fmt.Errorf("%d things are not as the list has them:\n%s", len(wrong), strings.Join(wrong, "\n"))
	}
	return nil
}

// runOn runs the specs on the cluster, and returns them and the suite's other failures.
func (o options) runOn(ctx context.Context, w workshop, chosen []spec) ([]spec, []string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := newCluster(o.repository)
	if err != nil {
		return nil, nil, err
	}
	folder := filepath.Join(string(w), "run")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, nil, fmt.Errorf("making the guests' disks: %w", err)
	}
	disks := map[string]string{}
	for _, image := range diskImages {
		if disks[image.distribution] != "" {
			continue
		}
		disk := filepath.Join(folder, image.distribution+".qcow2")
		if err := guest.WriteDiskAs(ctx, filepath.Join(o.repository, "build", "cache"), image.distribution, disk); err != nil {
			return nil, nil, err
		}
		disks[image.distribution] = disk
	}
	if _, err := serveRegistry(ctx, c.host+":"+registryPort); err != nil {
		return nil, nil, err
	}
	archives, err := provideImages(ctx, c.prefix(), folder, disks)
	if err != nil {
		return nil, nil, err
	}
	tools := filepath.Join(folder, toolsName+".tar")
	if err := renameImage(filepath.Join(o.repository, "build", "images", "test-tools.tar"), tools, c.prefix()+"/"+toolsName+":"+imageTag); err != nil {
		return nil, nil, err
	}
	if err := c.prepare(ctx, append(archives, tools)); err != nil {
		return nil, nil, err
	}
	fmt.Printf("%d specs run; %s has what they print\n", len(chosen), filepath.Join(folder, "output.log"))
	if err := c.runSuite(ctx, w, order{specs: chosen, bound: o.bound, folder: folder}); err != nil {
		return nil, nil, err
	}
	return readReport(filepath.Join(folder, reportName))
}
