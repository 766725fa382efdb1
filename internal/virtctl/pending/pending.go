// Package pending holds virtctl's verb pending: it lists the changes of a VM that have not reached its guest, how
// they will, and their obstacles. It reads the VM, its VMI and its migrations, and reports their conditions: it must
// not decide or change anything.
package pending

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/virtctl/env"
)

// NewCommand returns the command.
func NewCommand(e *env.Env) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "pending VM",
		Short: "Show which changes of a virtual machine have not reached its guest, and why",
		Long: "Show which changes of a virtual machine have not reached its guest: the field, how the change takes effect\n" +
			"(live, by a migration, by a restart), and what it waits for. Whoever may read the machine, its instance and its\n" +
			"migrations may ask.",
		Example: e.Example("# What does the virtual machine 'vm-cirros' wait for?", "pending vm-cirros",
			"# For a program:", "pending vm-cirros -o json"),
		Args: env.ExactArgs("VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd.Context(), e, args[0], output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml instead of a table")
	return cmd
}

type answer struct {
	Namespace string   `json:"namespace"`
	VM        string   `json:"vm"`
	Changes   []change `json:"changes"`
}

func show(ctx context.Context, e *env.Env, name, output string) error {
	if output != "" {
		if err := env.CheckFormat(output); err != nil {
			return err
		}
	}
	c, namespace, err := e.Connect()
	if err != nil {
		return err
	}
	var f facts
	if f.vm, err = c.VM(ctx, namespace, name); err != nil {
		return fmt.Errorf("reading VM %s: %w", name, err)
	}
	switch f.vmi, err = c.VMI(ctx, namespace, name); {
	case apierrors.IsNotFound(err):
		f.vmi = nil
	case err != nil:
		return fmt.Errorf("reading the VMI of VM %s: %w", name, err)
	}
	if f.vmi != nil {
		if f.migrations, err = c.Migrations(ctx, namespace, name); err != nil {
			return fmt.Errorf("reading the migrations of VM %s: %w", name, err)
		}
	}
	a := answer{Namespace: namespace, VM: name, Changes: f.changes()}
	if output != "" {
		return env.Print(e.Out, output, a)
	}
	return a.print(e.Out, f.vmi != nil)
}

// Sentences returns a sentence for each change of a VM that has not reached its guest. vmi is nil if the VM has none.
func Sentences(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, migrations []v1.VirtualMachineInstanceMigration) []string {
	f := facts{vm: vm, vmi: vmi, migrations: migrations}
	var list []string
	for _, c := range f.changes() {
		list = append(list, fmt.Sprintf("%s takes effect %s, and waits for %s", cmp.Or(c.Path, "a change"), c.Effect.text(), c.WaitsFor))
	}
	return list
}

func (a *answer) print(out io.Writer, runs bool) error {
	if len(a.Changes) == 0 {
		text := fmt.Sprintf("nothing is pending for VM %s\n", a.VM)
		if !runs {
			text = fmt.Sprintf("nothing is pending for VM %s: it does not run, and starts with all that it says\n", a.VM)
		}
		_, err := io.WriteString(out, text)
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CHANGE\tTAKES EFFECT\tWAITS FOR")
	for _, c := range a.Changes {
		fmt.Fprintf(table, "%s\t%s\t%s\n", env.Plain(cmp.Or(c.Path, "-")), c.Effect.text(), env.Plain(c.WaitsFor))
	}
	return table.Flush()
}

func (e effect) text() string {
	if e == live {
		return "live"
	}
	return "by " + string(e)
}
