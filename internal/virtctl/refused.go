package virtctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/contracts/layout"
)

// refused are KubeVirt's commands that Drydock does not implement. They exist to report this: "unknown command"
// would suggest a typing error.
var refused = []struct {
	name    string
	instead string
}{
	{"objectgraph", "'kubectl get vm,vmi,pods,datavolumes,pvc' lists what belongs to a machine"},
	{"template", layout.InsteadOfTemplates},
	{"usbredir", "give the device to the guest over the network, with usbip between this computer and the guest"},
	{"vmexport", layout.InsteadOfExports},
}

type refusal struct{ command, instead string }

func (r *refusal) Error() string { return fmt.Sprintf("%s: not supported by Drydock", r.command) }

// The hidden commands accept any flags.
func newRefused() []*cobra.Command {
	commands := make([]*cobra.Command, 0, len(refused))
	for _, r := range refused {
		commands = append(commands, &cobra.Command{
			Use: r.name, Hidden: true, DisableFlagParsing: true,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return &refusal{command: cmd.CommandPath(), instead: r.instead}
			},
		})
	}
	return commands
}
