// Command virt is Drydock's server: one binary and image, with a subcommand for each component in the cluster.
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"drydock.dev/drydock/internal/api"
	"drydock.dev/drydock/internal/controller"
	"drydock.dev/drydock/internal/handler"
	"drydock.dev/drydock/internal/startup"
	"drydock.dev/drydock/internal/virtweb"
)

func main() {
	root := &cobra.Command{
		Use:           "virt",
		Short:         "Virtual machines as Kubernetes objects: the server components",
		SilenceUsage:  true,
		SilenceErrors: false,
	}
	root.AddCommand(api.NewCommand(), controller.NewCommand(), handler.NewCommand(), handler.NewTapCommand(), virtweb.NewCommand(), awaitPort())
	if err := root.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}

func awaitPort() *cobra.Command {
	return &cobra.Command{
		Use:   "await-port PORT",
		Short: "Wait until a component in the same pod listens",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			port, err := strconv.ParseUint(args[0], 10, 16)
			if err != nil {
				return fmt.Errorf("%q is no port: name a number up to 65535", args[0])
			}
			return startup.Listens(cmd.Context(), int(port))
		},
	}
}
