// Package migrate holds virtctl's verbs for live migrations: migrate, migrate-cancel and evacuate-cancel. Each
// must be one request: virt-controller does the rest, which 'migrate --wait' shows.
package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

// NewCommands returns the package's commands.
func NewCommands(e *env.Env) []*cobra.Command {
	return []*cobra.Command{newMigrate(e), newCancel(e), newEvacuateCancel(e)}
}

type order struct {
	vm           string
	selector     map[string]string
	dryRun, wait bool
}

func newMigrate(e *env.Env) *cobra.Command {
	var o order
	cmd := &cobra.Command{
		Use:   "migrate VM",
		Short: "Migrate a virtual machine to another node while it runs",
		Long: "Migrate a virtual machine to another node while it runs. The scheduler chooses the node.\n" +
			"The command returns when the migration was made; 'kubectl get vmim' lists migrations.",
		Example: e.Example("# Migrate the virtual machine 'vm-cirros':", "migrate vm-cirros",
			"# Wait until it is there, and show how far it is:", "migrate vm-cirros --wait",
			"# To a node with a label:", "migrate vm-cirros --addedNodeSelector=zone=b"),
		Args: env.ExactArgs("VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.vm = args[0]
			return o.give(cmd.Context(), e)
		},
	}
	cmd.Flags().StringToStringVar(&o.selector, "addedNodeSelector", nil,
		"labels that the node must have beside those that the machine asks for: key=value,key2=value2")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "show the migration until it has ended; without success the exit code is 1")
	addDryRun(cmd, &o.dryRun)
	return cmd
}

func addDryRun(cmd *cobra.Command, dryRun *bool) {
	cmd.Flags().BoolVar(dryRun, "dry-run", false, "have the server check the request without doing it")
}

func stages(dryRun bool) []string {
	if !dryRun {
		return nil
	}
	return []string{metav1.DryRunAll}
}

func (o order) give(ctx context.Context, e *env.Env) error {
	if o.dryRun && o.wait {
		return errors.New("--wait has nothing to wait for with --dry-run")
	}
	c, namespace, err := e.Connect()
	if err != nil {
		return err
	}
	before := map[types.UID]bool{}
	if o.wait {
		// The response does not name the migration.
		earlier, err := c.Migrations(ctx, namespace, o.vm)
		if err != nil {
			return fmt.Errorf("reading the migrations of VM %s: %w", o.vm, err)
		}
		for i := range earlier {
			before[earlier[i].UID] = true
		}
	}
	if o.dryRun {
		fmt.Fprintln(e.Out, "Dry Run execution")
	}
	ref := client.Ref{Resource: client.VirtualMachines, Namespace: namespace, Name: o.vm}
	options := &v1.MigrateOptions{DryRun: stages(o.dryRun), AddedNodeSelector: o.selector}
	if err := c.Put(ctx, ref, "migrate", options); err != nil {
		return fmt.Errorf("asking for migration of VM %s: %w", o.vm, err)
	}
	fmt.Fprintf(e.Out, "VM %s was scheduled to migrate\n", o.vm)
	if !o.wait {
		return nil
	}
	return o.follow(ctx, e, c, namespace, before)
}

// follow shows the migration that is not in before.
func (o order) follow(ctx context.Context, e *env.Env, c *client.Client, namespace string, before map[types.UID]bool) error {
	migrations, err := c.Migrations(ctx, namespace, o.vm)
	if err != nil {
		return fmt.Errorf("reading the migrations of VM %s: %w", o.vm, err)
	}
	for i := range migrations {
		if m := &migrations[i]; !before[m.UID] {
			return show(ctx, e, c, m)
		}
	}
	return fmt.Errorf("the migration of VM %s is gone already; 'kubectl describe vmi %s' shows what became of it", o.vm, o.vm)
}

func newCancel(e *env.Env) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:     "migrate-cancel VM",
		Short:   "Cancel the migration of a virtual machine",
		Long:    "Cancel the migration of a virtual machine, which goes on where it is. It is too late once the machine runs on the other node.",
		Example: e.Example("# Cancel the migration of the virtual machine 'vm-cirros':", "migrate-cancel vm-cirros"),
		Args:    env.ExactArgs("VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cancel(cmd.Context(), e, args[0], dryRun)
		},
	}
	addDryRun(cmd, &dryRun)
	return cmd
}

func cancel(ctx context.Context, e *env.Env, vm string, dryRun bool) error {
	c, namespace, err := e.Connect()
	if err != nil {
		return err
	}
	migrations, err := c.Migrations(ctx, namespace, vm)
	if err != nil {
		return fmt.Errorf("reading the migrations of VM %s: %w", vm, err)
	}
	if dryRun {
		fmt.Fprintln(e.Out, "Dry Run execution")
	}
	found := false
	for i := range migrations {
		if m := &migrations[i]; !m.IsFinal() {
			if err := c.CancelMigration(ctx, namespace, m.Name, stages(dryRun)); err != nil {
				return fmt.Errorf("canceling the migration %s of VM %s: %w", m.Name, vm, err)
			}
			found = true
		}
	}
	if !found {
		return fmt.Errorf("found no migration to cancel for VM %s in namespace %s", vm, namespace)
	}
	fmt.Fprintf(e.Out, "VM %s was scheduled to migrate-cancel\n", vm)
	return nil
}
