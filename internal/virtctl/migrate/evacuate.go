package migrate

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

func newEvacuateCancel(e *env.Env) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "evacuate-cancel (vm|vmi|node) NAME",
		Short: "Cancel the evacuation of a virtual machine, or of all on a node",
		Long: "Cancel the evacuation of a virtual machine, or of all on a node: what has not begun to move stays.\n" +
			"As long as a drain goes on, it asks for the evacuation again.",
		Example: e.Example("# Cancel the evacuation of the virtual machine 'vm-cirros':", "evacuate-cancel vm vm-cirros",
			"# Of all machines on a node, in all namespaces:", "evacuate-cancel node node1"),
		Args: env.ExactArgs("vm, vmi or node", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cancelEvacuation(cmd.Context(), e, args[0], args[1], dryRun)
		},
	}
	addDryRun(cmd, &dryRun)
	return cmd
}

func cancelEvacuation(ctx context.Context, e *env.Env, kind, name string, dryRun bool) error {
	c, namespace, err := e.Connect()
	if err != nil {
		return err
	}
	if dryRun {
		fmt.Fprintln(e.Out, "Dry Run execution")
	}
	options := &v1.EvacuateCancelOptions{DryRun: stages(dryRun)}
	if kind == "node" {
		// A VMI that has moved since it was listed is left alone.
		options.EvacuationNodeName = name
	}
	of := func(shown string, ref client.Ref) error {
		if err := c.Put(ctx, ref, "evacuate/cancel", options); err != nil {
			return fmt.Errorf("canceling the evacuation of %s %s: %w", shown, ref.Name, err)
		}
		fmt.Fprintf(e.Out, "%s %s/%s was canceled evacuation\n", shown, ref.Namespace, ref.Name)
		return nil
	}
	switch kind {
	case "vm":
		return of("VM", client.Ref{Resource: client.VirtualMachines, Namespace: namespace, Name: name})
	case "vmi":
		return of("VMI", client.Ref{Resource: client.VirtualMachineInstances, Namespace: namespace, Name: name})
	case "node":
		// VMIs are marked with the node. A failure does not stop the others.
		vmis, err := c.VMIs(ctx)
		if err != nil {
			return fmt.Errorf("reading the VMIs of all namespaces: %w", err)
		}
		var failed error
		found := 0
		for i := range vmis {
			if vmis[i].Status.EvacuationNodeName != name {
				continue
			}
			found++
			if err := of("VMI", client.Ref{Resource: client.VirtualMachineInstances, Namespace: vmis[i].Namespace, Name: vmis[i].Name}); err != nil {
				failed = err
				fmt.Fprintf(e.Err, "%v\n", err)
			}
		}
		if found == 0 {
			fmt.Fprintf(e.Out, "no VMI is being evacuated from node %s\n", name)
		}
		return failed
	}
	return fmt.Errorf("evacuations are those of a vm, a vmi or a node, not of a %s", kind)
}
