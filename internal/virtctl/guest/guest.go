// Package guest holds virtctl's queries of the guest agent: guestosinfo, fslist and userlist. It must print the
// server's responses unchanged.
package guest

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

type question struct {
	use, short, verb string
}

var questions = []question{
	{"guestosinfo", "Print what the guest agent says about the guest's operating system", "guestosinfo"},
	{"fslist", "Print the file systems that are mounted in the guest", "filesystemlist"},
	{"userlist", "Print the users that are logged in to the guest", "userlist"},
}

// NewCommands returns the package's commands.
func NewCommands(e *env.Env) []*cobra.Command {
	commands := make([]*cobra.Command, 0, len(questions))
	for _, q := range questions {
		commands = append(commands, newCommand(e, q))
	}
	return commands
}

func newCommand(e *env.Env, q question) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     q.use + " VMI",
		Short:   q.short,
		Long:    q.short + ".\nThe guest has to run qemu-guest-agent.",
		Example: e.Example("# Ask the guest of 'vm-cirros':", q.use+" vm-cirros"),
		Args:    env.ExactArgs("VMI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			name := args[0]
			if err := env.CheckFormat(output); err != nil {
				return err
			}
			c, namespace, err := e.Connect()
			if err != nil {
				return err
			}
			ref := client.Ref{Resource: client.VirtualMachineInstances, Namespace: namespace, Name: name}
			body, err := c.Get(ctx, ref, q.verb)
			if err != nil {
				return fmt.Errorf("asking the guest of VMI %s for its %s: %w", name, q.verb, err)
			}
			// Decoding would lose fields of a newer server.
			return env.Print(e.Out, output, json.RawMessage(body))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "json", "json or yaml")
	return cmd
}
