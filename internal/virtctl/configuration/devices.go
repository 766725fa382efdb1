// Package configuration holds virtctl's commands for the KubeVirt object: permitted-devices, which lists the
// node devices that machines may use, and adm log-verbosity, which shows and sets the log level of components.
// It must not use another object. One table has all facts about Drydock's components.
package configuration

import (
	"fmt"

	"github.com/spf13/cobra"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/virtctl/env"
)

// NewDevices returns the command permitted-devices.
func NewDevices(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "permitted-devices",
		Short:   "List the GPUs and other devices of nodes that machines may have",
		Long:    "List the GPUs and other devices of nodes that machines may have. A PCI device may stand in gpus and in hostDevices.",
		Example: e.Example("# What may stand in a machine's gpus and hostDevices:", "permitted-devices"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			c, err := e.Client()
			if err != nil {
				return err
			}
			kubevirts, err := c.KubeVirts(ctx)
			if err != nil {
				return fmt.Errorf("reading the KubeVirt object: %w", err)
			}
			if len(kubevirts) == 0 {
				return fmt.Errorf("the cluster has no KubeVirt object, which says what is permitted")
			}
			_, err = fmt.Fprint(e.Out, list(kubevirts[0].Spec.Configuration.PermittedHostDevices))
			return err
		},
	}
}

func list(permitted *v1.PermittedHostDevices) string {
	if permitted == nil {
		permitted = &v1.PermittedHostDevices{}
	}
	text := "Permitted devices:\nHost devices:\n"
	for _, device := range permitted.PciHostDevices {
		text += fmt.Sprintf("  %s (PCI %s)\n", device.ResourceName, device.PCIVendorSelector)
	}
	for _, device := range permitted.USB {
		text += fmt.Sprintf("  %s (USB, which no machine gets)\n", device.ResourceName)
	}
	text += "GPU devices:\n"
	for _, device := range permitted.MediatedDevices {
		text += fmt.Sprintf("  %s (%s, which no machine gets)\n", device.ResourceName, device.MDEVNameSelector)
	}
	return text
}
