package handler

import (
	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/handler/network"
)

// NewTapCommand returns the command `virt make-tap`, which runs in a launcher's SELinux context
// (network.TapChild, decision 237).
func NewTapCommand() *cobra.Command {
	return &cobra.Command{
		Use:                network.TapCommand,
		Short:              "Make a tap for a guest; run by virt-handler",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return network.RunTapCommand(args)
		},
	}
}
