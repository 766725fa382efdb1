// Package diagnose holds virtctl adm diagnose: it collects the objects and logs that a maintainer asks for, and names the
// faults in them. Package redact decides which values may leave the cluster, findings which faults there are, archive how
// the files are written; this package only reads. It must not change anything in a cluster, and must not read a Secret.
package diagnose

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"drydock.dev/drydock/internal/virtctl/diagnose/archive"
	"drydock.dev/drydock/internal/virtctl/diagnose/findings"
	"drydock.dev/drydock/internal/virtctl/env"
)

// foundWrong is the exit code if something is found wrong.
const foundWrong = 2

type options struct {
	vm, output string
	overwrite  bool
}

// NewCommand returns the command.
func NewCommand(e *env.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "diagnose",
		Short: "Collect what a maintainer asks for, and say what is wrong",
		Long: "Collect what a maintainer asks for, and say what is wrong.\n\n" +
			"Objects of Drydock and of machines, events, and the ends of logs go into a folder or an archive that only you may\n" +
			"read, in the layout of must-gather. Secrets, cloud-init, environments of containers and all other values that are\n" +
			"not known to be harmless are left out. What you may not read is left out, too, and named.\n\n" +
			"The exit code is 0 if nothing is found wrong, 2 if something is, and 1 if the diagnosis could not be made.",
		Example: e.Example("# The whole installation, into a new archive in this folder:", "adm diagnose",
			"# One machine of the namespace 'lab':", "adm diagnose --vm vm-cirros -n lab -o vm-cirros.tgz",
			"# All machines of a namespace, into a folder:", "adm diagnose -n lab -o diagnosis"),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), e, cmd.Flags())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.vm, "vm", "", "only what belongs to this VM or VMI, and the installation")
	flags.StringVarP(&o.output, "output", "o", "", "a folder that is new or empty, or an archive (.tgz, .tar.gz); the default is a new archive in this folder")
	flags.BoolVar(&o.overwrite, "overwrite", false, "replace an archive that exists")
	return cmd
}

func (o *options) run(ctx context.Context, e *env.Env, flags *pflag.FlagSet) error {
	now := time.Now()
	client, own, err := e.Connect()
	if err != nil {
		return err
	}
	output := o.output
	if output == "" {
		output = "drydock-diagnosis-" + now.UTC().Format("20060102-150405") + ".tgz"
	}
	out, err := archive.New(output, o.overwrite, now)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the output %s is there already: name another one, a new or empty folder, or replace an archive with --overwrite", output)
	}
	if err != nil {
		return fmt.Errorf("creating the output: %w", err)
	}
	c := newCollector(client, out, o.vm, own)
	if o.vm != "" || flags.Changed("namespace") {
		c.only = own
	}
	p := page{output: output, again: command(e.Program, flags), now: now}
	limited, stop := context.WithTimeoutCause(ctx, maxTime, errLate)
	defer stop()
	if err := o.collect(limited, c, &p); err != nil {
		out.Discard()
		return err
	}
	fmt.Fprint(e.Out, p.String())
	if len(p.wrong()) > 0 {
		return &env.Ended{Program: "the diagnosis", Code: foundWrong}
	}
	return nil
}

func (o *options) collect(ctx context.Context, c *collector, p *page) error {
	p.found = findings.Examine(c.all(ctx), p.now)
	if c.err != nil && (!errors.Is(c.err, errLate) || !c.answered) {
		return c.err
	}
	if o.vm != "" && len(c.scope.machines) == 0 {
		return fmt.Errorf("namespace %s has neither a VM nor a VMI %s that you may read", c.own, o.vm)
	}
	for _, step := range []func(context.Context) error{c.versions, c.askGuests, c.readQEMU, c.readLogs} {
		err := step(ctx)
		if errors.Is(err, errLate) {
			break
		}
		if err != nil {
			return err
		}
	}
	if errors.Is(context.Cause(ctx), errLate) {
		c.miss("all that could not be read within %d minutes", int(maxTime.Minutes()))
	}
	for few := range slices.Chunk(slices.Compact(c.unserved), 6) { // a sentence is bounded
		c.miss("the cluster does not have %s", strings.Join(few, ", "))
	}
	p.missing, p.objects, p.logs = c.sentences(), c.objects, c.logs
	if err := c.out.Add([]byte(p.String()), "diagnosis.txt"); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	if err := c.out.Close(); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// repeated are the flags that the command to repeat has. Others may be credentials.
var repeated = []string{"kubeconfig", "context", "cluster", "user", "namespace", "vm", "output", "overwrite"}

// command returns the command line that makes the same diagnosis.
func command(program string, flags *pflag.FlagSet) string {
	words := []string{program, "adm diagnose"}
	flags.Visit(func(f *pflag.Flag) {
		if slices.Contains(repeated, f.Name) {
			words = append(words, "--"+f.Name+"="+env.ShellWord(f.Value.String()))
		}
	})
	return strings.Join(words, " ")
}
