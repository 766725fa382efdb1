// Package power holds virtctl's verbs that change whether a machine runs: start, stop, restart, pause, unpause,
// soft-reboot and reset. Each must be one request; virt-api decides its effect.
package power

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

// NewCommands returns the package's commands.
func NewCommands(e *env.Env) []*cobra.Command {
	return []*cobra.Command{
		newStart(e), newStop(e), newRestart(e),
		newPause(e), newUnpause(e),
		newSoftReboot(e), newReset(e),
	}
}

type order struct {
	resource client.Resource
	name     string
	// verb is the subresource, said its name in messages.
	verb, said string
	// options is the body of the request, nil for none.
	options any
	dryRun  bool
}

// The words are those of KubeVirt's virtctl.
func (o order) give(ctx context.Context, e *env.Env) error {
	c, namespace, err := e.Connect()
	if err != nil {
		return err
	}
	if o.dryRun {
		fmt.Fprintln(e.Out, "Dry Run execution")
	}
	ref := client.Ref{Resource: o.resource, Namespace: namespace, Name: o.name}
	if err := c.Put(ctx, ref, o.verb, o.options); err != nil {
		// Users know a machine in maintenance by KubeVirt's sentence alone.
		said := fmt.Sprintf("Failed to start %s as it is in maintenance mode", o.name)
		if apierrors.IsConflict(err) && strings.Contains(err.Error(), said) {
			fmt.Fprintln(e.Err, said)
			return &env.Ended{Program: "the API server", Code: 1}
		}
		return fmt.Errorf("asking for %s of %s %s: %w", o.said, o.kind(), o.name, err)
	}
	fmt.Fprintf(e.Out, "%s %s was scheduled to %s\n", o.kind(), o.name, o.said)
	return nil
}

func (o order) kind() string {
	if o.resource == client.VirtualMachines {
		return "VM"
	}
	return "VMI"
}

func newStart(e *env.Env) *cobra.Command {
	var options v1.StartOptions
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "start VM",
		Short: "Start a virtual machine",
		Example: e.Example("# Start the virtual machine 'vm-cirros':", "start vm-cirros",
			"# Start it with its CPUs halted, to look at it from its first instruction:", "start vm-cirros --paused"),
		Args: env.ExactArgs("VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.DryRun = stages(dryRun)
			o := order{client.VirtualMachines, args[0], "start", "start", &options, dryRun}
			return o.give(cmd.Context(), e)
		},
	}
	cmd.Flags().BoolVar(&options.Paused, "paused", false, "start the machine paused; 'unpause' lets it run")
	addDryRun(cmd, &dryRun)
	return cmd
}

func newStop(e *env.Env) *cobra.Command {
	var force, dryRun bool
	var grace int64
	cmd := &cobra.Command{
		Use:   "stop VM",
		Short: "Stop a virtual machine",
		Example: e.Example("# Shut the virtual machine 'vm-cirros' down:", "stop vm-cirros",
			"# Pull its plug:", "stop vm-cirros --force --grace-period=0"),
		Args: env.ExactArgs("VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			period, err := gracePeriod(cmd, force, grace)
			if err != nil {
				return err
			}
			options := &v1.StopOptions{GracePeriod: period, DryRun: stages(dryRun)}
			o := order{client.VirtualMachines, args[0], "stop", "stop", options, dryRun}
			return o.give(cmd.Context(), e)
		},
	}
	addForce(cmd, &force, &grace)
	addDryRun(cmd, &dryRun)
	return cmd
}

func newRestart(e *env.Env) *cobra.Command {
	var force, dryRun bool
	var grace int64
	cmd := &cobra.Command{
		Use:   "restart VM",
		Short: "Restart a virtual machine",
		Example: e.Example("# Restart the virtual machine 'vm-cirros':", "restart vm-cirros",
			"# Restart it without waiting for its guest:", "restart vm-cirros --force --grace-period=0"),
		Args: env.ExactArgs("VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			period, err := gracePeriod(cmd, force, grace)
			if err != nil {
				return err
			}
			options := &v1.RestartOptions{GracePeriodSeconds: period, DryRun: stages(dryRun)}
			o := order{client.VirtualMachines, args[0], "restart", "restart", options, dryRun}
			return o.give(cmd.Context(), e)
		},
	}
	addForce(cmd, &force, &grace)
	addDryRun(cmd, &dryRun)
	return cmd
}

func newSoftReboot(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "soft-reboot VMI",
		Short:   "Ask the guest of a virtual machine instance to reboot",
		Long:    "Ask the guest to reboot: through its agent if one answers, else by an ACPI event.\nThe pod and the virtual machine instance stay.",
		Example: e.Example("# Reboot the guest of 'vm-cirros':", "soft-reboot vm-cirros"),
		Args:    env.ExactArgs("VMI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := order{client.VirtualMachineInstances, args[0], "softreboot", "soft-reboot", nil, false}
			return o.give(cmd.Context(), e)
		},
	}
}

func newReset(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "reset VMI",
		Short:   "Reset a virtual machine instance, as its reset button would",
		Long:    "Reset a virtual machine instance without asking its guest; unsaved data is lost.\nThe pod and the virtual machine instance stay.",
		Example: e.Example("# Press the reset button of 'vm-cirros':", "reset vm-cirros"),
		Args:    env.ExactArgs("VMI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := order{client.VirtualMachineInstances, args[0], "reset", "reset", nil, false}
			return o.give(cmd.Context(), e)
		},
	}
}

func addDryRun(cmd *cobra.Command, dryRun *bool) {
	cmd.Flags().BoolVar(dryRun, "dry-run", false, "have the server check the request without doing it")
}

func addForce(cmd *cobra.Command, force *bool, grace *int64) {
	cmd.Flags().BoolVar(force, "force", false, "do not wait for the guest; needs --grace-period")
	cmd.Flags().Int64Var(grace, "grace-period", -1, "seconds that the guest is given to shut down")
}

func stages(dryRun bool) []string {
	if !dryRun {
		return nil
	}
	return []string{metav1.DryRunAll}
}

// Without --force the period of the machine's spec applies.
func gracePeriod(cmd *cobra.Command, force bool, seconds int64) (*int64, error) {
	set := cmd.Flags().Changed("grace-period")
	switch {
	case force && !set:
		return nil, fmt.Errorf("--force needs a period: add --grace-period=0 to pull the plug at once")
	case set && !force:
		return nil, fmt.Errorf("--grace-period needs --force, because it may cut the guest's own shutdown short")
	case set && seconds < 0:
		return nil, fmt.Errorf("--grace-period must not be negative, but is %d", seconds)
	case set:
		return &seconds, nil
	default:
		return nil, nil
	}
}
