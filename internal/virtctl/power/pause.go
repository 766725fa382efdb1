package power

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

func newPause(e *env.Env) *cobra.Command {
	cmd := newFreezing(e, "pause", func(dryRun []string) any { return &v1.PauseOptions{DryRun: dryRun} })
	cmd.Short = "Pause a virtual machine"
	cmd.Long = "Halt the CPUs of a running machine. Its memory stays where it is; 'unpause' lets it run on."
	return cmd
}

func newUnpause(e *env.Env) *cobra.Command {
	cmd := newFreezing(e, "unpause", func(dryRun []string) any { return &v1.UnpauseOptions{DryRun: dryRun} })
	cmd.Short = "Unpause a virtual machine"
	cmd.Long = "Let a paused machine run on."
	return cmd
}

// A VM and its VMI have the same name, and the VMI is paused.
func newFreezing(e *env.Env, verb string, options func(dryRun []string) any) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: verb + " vm|vmi NAME",
		Example: e.Example("# By the name of the virtual machine:", verb+" vm vm-cirros",
			"# By the name of the virtual machine instance:", verb+" vmi vm-cirros"),
		Args: env.ExactArgs("vm or vmi", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(machineKinds, args[0]) {
				return fmt.Errorf("the first argument must be vm or vmi, not %q", args[0])
			}
			o := order{client.VirtualMachineInstances, args[1], verb, verb, options(stages(dryRun)), dryRun}
			return o.give(cmd.Context(), e)
		},
	}
	addDryRun(cmd, &dryRun)
	return cmd
}

var machineKinds = []string{
	"vm", "vms", "virtualmachine", "virtualmachines", "vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances",
}
