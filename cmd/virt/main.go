// Command virt is Drydock's server: one binary, one image, and a subcommand for
// each component that runs in the cluster.
package main

import (
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"drydock.dev/drydock/internal/api"
	"drydock.dev/drydock/internal/controller"
	"drydock.dev/drydock/internal/handler"
)

func main() {
	root := &cobra.Command{
		Use:           "virt",
		Short:         "Virtual machines as Kubernetes objects: the server components",
		SilenceUsage:  true,
		SilenceErrors: false,
	}
	root.AddCommand(api.NewCommand(), controller.NewCommand(), handler.NewCommand(), handler.NewTapCommand())
	if err := root.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}
