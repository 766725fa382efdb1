package configuration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/retry"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

type component struct {
	name, field string
	// unfollowed is why the component ignores its setting, "" if it follows it.
	unfollowed string
}

var components = []component{
	{"virt-api", "virtAPI", ""},
	{"virt-controller", "virtController", ""},
	{"virt-handler", "virtHandler", ""},
	{"virt-launcher", "virtLauncher", "Drydock's logs at one level; what it finds out, virt-handler logs"},
	{"virt-operator", "virtOperator", "Drydock has none"},
}

const (
	maxLevel = 9
	// drydockMax is the highest level of Drydock's components, and drydockDefault their default.
	drydockMax, drydockDefault = 7, 0
	// kubeVirtDefault is the default level of KubeVirt's components.
	kubeVirtDefault = 2
	// show is the value of a flag without one.
	show = "show"
)

// level is the flag of a component: unset, a query, or a value.
type level struct {
	isShow bool
	set    *int
}

func (l *level) String() string { return "" }

func (l *level) Type() string { return "level" }

func (l *level) Set(text string) error {
	if text == show {
		l.isShow = true
		return nil
	}
	value, err := strconv.Atoi(text)
	if err != nil || value < 0 || value > maxLevel {
		return fmt.Errorf("a verbosity is a number from 0 to %d", maxLevel)
	}
	l.set = &value
	return nil
}

type verbosityOptions struct {
	all    level
	levels []level // as in components
	reset  bool
}

// NewVerbosity returns the command log-verbosity, a part of adm.
func NewVerbosity(e *env.Env) *cobra.Command {
	o := verbosityOptions{levels: make([]level, len(components))}
	cmd := &cobra.Command{
		Use:   "log-verbosity",
		Short: "Show, set or reset how much components log",
		Long: "Show, set or reset how much components log.\n" +
			"A component's flag shows its verbosity, and sets it if it has a value: --virt-api=5.",
		Example: e.Example("# What is set:", "adm log-verbosity --all",
			"# More of virt-handler:", "adm log-verbosity --virt-handler=5",
			"# Back to where nothing is set, but for virt-api:", "adm log-verbosity --reset --virt-api=3"),
		Args: noLevelApart,
		RunE: func(cmd *cobra.Command, _ []string) error {
			shows, sets := o.all.isShow, o.reset || o.all.set != nil
			for _, l := range o.levels {
				shows, sets = shows || l.isShow, sets || l.set != nil
			}
			switch {
			case o.reset && (o.all.isShow || o.all.set != nil):
				return errors.New("--reset and --all contradict each other: leave one away")
			case shows && sets:
				return errors.New("either show verbosities, with flags without values, or set and reset them, not both at once")
			case !shows && !sets:
				return errors.New("say whose verbosity: --all, or that of components, for example --virt-api; with a value it is set")
			}
			return o.run(cmd.Context(), e)
		},
	}
	flags := cmd.Flags()
	for i, c := range components {
		flags.Var(&o.levels[i], c.name, "show or set the verbosity of "+c.name+", 0 to 9")
		flags.Lookup(c.name).NoOptDefVal = show
	}
	flags.Var(&o.all, "all", "show or set those of all of them")
	flags.Lookup("all").NoOptDefVal = show
	flags.BoolVar(&o.reset, "reset", false, "empty what is set, that of single nodes, too")
	return cmd
}

// A level after a blank is parsed as an argument.
func noLevelApart(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("argument %q is one too many; a verbosity stands behind '=': --virt-api=5", args[0])
	}
	return nil
}

func (o *verbosityOptions) run(ctx context.Context, e *env.Env) error {
	c, err := e.Client()
	if err != nil {
		return err
	}
	if o.all.isShow || slices.ContainsFunc(o.levels, func(l level) bool { return l.isShow }) {
		kv, err := theOne(ctx, c)
		if err != nil {
			return err
		}
		o.show(e, kv.Levels)
		return nil
	}
	var changed *client.Verbosity
	// Status updates change the object's version, too.
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if changed, err = theOne(ctx, c); err != nil {
			return err
		}
		return o.patch(ctx, c, changed)
	})
	if err != nil {
		return err
	}
	wanted := o.wanted()
	for _, c := range components {
		value, isSet := wanted[c.field]
		switch {
		case !isSet:
		case c.unfollowed != "":
			fmt.Fprintf(e.Err, "%s: set, without effect: %s\n", c.name, c.unfollowed)
		case value > drydockMax:
			fmt.Fprintf(e.Err, "%s: set; Drydock's takes more than %d for %d\n", c.name, drydockMax, drydockMax)
		}
	}
	fmt.Fprintf(e.Out, "Log verbosity of KubeVirt %s/%s changed\n", changed.Namespace, changed.Name)
	return nil
}

func theOne(ctx context.Context, c *client.Client) (*client.Verbosity, error) {
	all, err := c.Verbosities(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the KubeVirt object: %w", err)
	case len(all) == 0:
		return nil, errors.New("the cluster has no KubeVirt object, which says how much is logged")
	case len(all) > 1:
		return nil, fmt.Errorf("the cluster has more than one KubeVirt object (%s/%s, %s/%s): delete what does not configure the installation",
			all[0].Namespace, all[0].Name, all[1].Namespace, all[1].Name)
	}
	return &all[0], nil
}

func (o *verbosityOptions) show(e *env.Env, levels map[string]any) {
	var unset []string
	for i, c := range components {
		if !o.all.isShow && !o.levels[i].isShow {
			continue
		}
		value, isSet := levels[c.field]
		if !isSet {
			value = kubeVirtDefault
			if c.unfollowed == "" {
				unset = append(unset, c.name)
			}
		}
		fmt.Fprintf(e.Out, "%s=%v\n", c.name, value)
	}
	if len(unset) > 0 {
		fmt.Fprintf(e.Err, "%s: not set, which is %d with KubeVirt; Drydock's log at %d then\n", strings.Join(unset, ", "), kubeVirtDefault, drydockDefault)
	}
}

func (o *verbosityOptions) wanted() map[string]int {
	wanted := map[string]int{}
	for i, c := range components {
		switch {
		case o.levels[i].set != nil:
			wanted[c.field] = *o.levels[i].set
		case o.all.set != nil:
			wanted[c.field] = *o.all.set
		}
	}
	return wanted
}

// patch changes the object if it has not changed since it was read, and if there is anything to change.
func (o *verbosityOptions) patch(ctx context.Context, c *client.Client, kv *client.Verbosity) error {
	levels := map[string]any{}
	if o.reset {
		for field := range kv.Levels {
			levels[field] = nil
		}
	}
	for field, value := range o.wanted() {
		levels[field] = value
	}
	if len(levels) == 0 {
		return nil
	}
	err := c.PatchKubeVirt(ctx, kv.Namespace, kv.Name, map[string]any{
		"metadata": map[string]any{"resourceVersion": kv.ResourceVersion},
		"spec":     map[string]any{"configuration": map[string]any{"developerConfiguration": map[string]any{"logVerbosity": levels}}},
	})
	if err != nil {
		return fmt.Errorf("setting the log verbosity of KubeVirt %s/%s: %w", kv.Namespace, kv.Name, err)
	}
	return nil
}
