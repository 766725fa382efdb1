// Package maintenance holds virtctl's verbs for the disks of stopped machines: guestfs, and maintenance with
// list, take and release. It must not decide who gets the disks: it waits for virt-controller, and prints its
// messages.
package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "drydock.dev/drydock/internal/contracts/maintenance"
	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

// NewCommands returns the package's commands.
func NewCommands(e *env.Env) []*cobra.Command {
	group := &cobra.Command{
		Use:   "maintenance",
		Short: "See who has the disks of machines that do not run, take them, and release them",
		Long:  "See who has the disks of machines that do not run, take them, and release them.\nWhile a pod has them, the machine does not start.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	group.AddCommand(newList(e), newTake(e), newRelease(e))
	return []*cobra.Command{newGuestfs(e), group}
}

// untilTold runs until SIGTERM. A container's first process ignores signals without a handler.
const untilTold = "trap 'exit 0' TERM; sleep infinity & wait"

type row struct {
	// VM is the name of a VM, or vmi/NAME.
	VM string `json:"vm"`
	contract.Pod
	// Holds means that the pod has the disks; the others wait in the rows' order.
	Holds bool `json:"holds"`
}

func newList(e *env.Env) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "list [VM|vmi/NAME]",
		Short: "List the pods that have the disks of machines, or wait for them",
		Example: e.Example("# Which machines of this namespace are in maintenance?", "maintenance list", "# Who has the disks of 'vm-cirros', and who waits?", "maintenance list vm-cirros",
			"# The same of a VirtualMachineInstance that belongs to no VM:", "maintenance list vmi/alone"),
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" {
				if err := env.CheckFormat(output); err != nil {
					return err
				}
			}
			c, namespace, err := e.Connect()
			if err != nil {
				return err
			}
			rows, err := gather(cmd.Context(), c, namespace, args)
			switch {
			case err != nil:
				return err
			case output != "":
				return env.Print(e.Out, output, rows)
			}
			now := time.Now()
			if len(rows) == 0 {
				_, err := fmt.Fprintln(e.Out, "no pod has the disks of a machine, or waits for them")
				return err
			}
			table := tabwriter.NewWriter(e.Out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "VM\tPOD\tDISKS\tNODE\tAGE")
			for _, r := range rows {
				disks := "waits"
				switch {
				case r.Holds && r.Phase == "":
					disks = "holds, and is gone"
				case r.Holds && r.Deleting:
					disks = "holds, and is ending"
				case r.Holds:
					disks = "holds"
				}
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", r.VM, r.Name, disks, cmp.Or(r.Node, "-"), age(r.Since, now))
			}
			return table.Flush()
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml instead of a table")
	return cmd
}

func gather(ctx context.Context, c *client.Client, namespace string, names []string) ([]row, error) {
	var machines []machine
	for _, name := range names {
		m, err := named(name)
		if err != nil {
			return nil, err
		}
		machines = append(machines, m)
	}
	if len(names) == 0 {
		var err error
		if machines, err = all(ctx, c, namespace); err != nil {
			return nil, err
		}
	}
	rows := []row{}
	for _, m := range machines {
		state, err := c.Maintenance(ctx, m.in(namespace))
		if err != nil {
			return nil, fmt.Errorf("asking who has the disks of %s: %w", m, err)
		}
		if state.Holder != nil {
			rows = append(rows, row{VM: m.word(), Pod: *state.Holder, Holds: true})
		}
		for _, waits := range state.Queue {
			rows = append(rows, row{VM: m.word(), Pod: waits})
		}
	}
	return rows, nil
}

// VMIs without an owner come last.
func all(ctx context.Context, c *client.Client, namespace string) ([]machine, error) {
	vms, err := c.VMs(ctx, namespace)
	if err != nil {
		return nil, fmt.Errorf("listing the VMs of namespace %s: %w", namespace, err)
	}
	vmis, err := c.VMIsOf(ctx, namespace)
	if err != nil {
		return nil, fmt.Errorf("listing the VMIs of namespace %s: %w", namespace, err)
	}
	var machines []machine
	for i := range vms {
		machines = append(machines, machine{client.VirtualMachines, vms[i].Name})
	}
	for i := range vmis {
		if metav1.GetControllerOf(&vmis[i]) == nil {
			machines = append(machines, machine{client.VirtualMachineInstances, vmis[i].Name})
		}
	}
	slices.SortFunc(machines, func(a, b machine) int { return cmp.Compare(a.String(), b.String()) })
	return machines, nil
}

func age(since string, now time.Time) string {
	at, err := time.Parse(time.RFC3339, since)
	if err != nil {
		return "-"
	}
	return now.Sub(at).Round(time.Second).String()
}

func newTake(e *env.Env) *cobra.Command {
	s := &session{}
	cmd := &cobra.Command{
		Use:   "take VM|vmi/NAME [-- COMMAND...]",
		Short: "Have a pod take the disks of a machine",
		Long: "Have a pod take the disks of a machine, which are below /disks in it. Without a command the pod keeps them until it is\n" +
			"released; with one, it runs that, and the exit code is the command's.",
		Example: e.Example("# Keep 'vm-cirros' from starting, and look at its disks:", "maintenance take vm-cirros",
			"# Reclaim what its guest does not use, and start it again:", "maintenance take vm-cirros --halt --restart-after -- virt-sparsify --in-place /disks/root/disk.img"),
		Args: env.MinimumArgs("VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.vm, s.request.Command = args[0], args[1:]
			if len(s.request.Command) == 0 {
				if s.restart {
					return errors.New("--restart-after needs a command whose end it is after; or start the machine with 'virtctl start' when it is released")
				}
				s.keep, s.request.Command = true, []string{"/bin/sh", "-c", untilTold}
			}
			return s.run(cmd.Context(), e)
		},
	}
	s.addFlags(cmd)
	return cmd
}

func newRelease(e *env.Env) *cobra.Command {
	var pod string
	var force bool
	cmd := &cobra.Command{
		Use:   "release VM|vmi/NAME",
		Short: "End the pod that has the disks of a machine",
		Long: "End the pod that has the disks of a machine, or the one named by --pod. The machine can start, or the next pod gets the\n" +
			"disks, as soon as the pod can no longer write. --force does not wait for that: whoever uses it vouches for it, that the\n" +
			"pod's node is switched off, for example. It needs a right of its own.",
		Example: e.Example("# End the maintenance of 'vm-cirros':", "maintenance release vm-cirros"),
		Args:    env.ExactArgs("VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := named(args[0])
			if err != nil {
				return err
			}
			c, namespace, err := e.Connect()
			if err != nil {
				return err
			}
			var parameters []client.Parameter
			if pod != "" {
				parameters = append(parameters, client.Parameter{Name: "pod", Value: pod})
			}
			if force {
				parameters = append(parameters, client.Parameter{Name: "force", Value: "true"})
			}
			if _, err := c.Release(cmd.Context(), m.in(namespace), parameters...); err != nil {
				return fmt.Errorf("releasing the disks of %s: %w", m, err)
			}
			fmt.Fprintf(e.Out, "%s is released when its pod has ended\n", m)
			return nil
		},
	}
	cmd.Flags().StringVar(&pod, "pod", "", "the pod to end, if it is not the one that has the disks")
	cmd.Flags().BoolVar(&force, "force", false, "release although the pod may still write")
	return cmd
}
