// Package version is virtctl version: it prints the versions of this program and of the cluster.
package version

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/contracts/version"
	"drydock.dev/drydock/internal/virtctl/env"
)

type answer struct {
	Client version.Info  `json:"clientVersion"`
	Server *version.Info `json:"serverVersion,omitempty"`
}

// NewCommand returns the command.
func NewCommand(e *env.Env) *cobra.Command {
	var clientOnly bool
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of the client and of the server",
		Example: e.Example("# What is installed here and in the cluster:", "version",
			"# Only this program, without a cluster:", "version --client"),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), e, clientOnly, output)
		},
	}
	cmd.Flags().BoolVarP(&clientOnly, "client", "c", false, "only the client's version; asks no server")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	return cmd
}

func run(ctx context.Context, e *env.Env, clientOnly bool, output string) error {
	if output != "" {
		if err := env.CheckFormat(output); err != nil {
			return err
		}
	}
	versions := answer{Client: version.Get()}
	if !clientOnly {
		c, err := e.Client()
		if err != nil {
			return err
		}
		body, err := c.ServerVersion(ctx)
		if err != nil {
			return fmt.Errorf("asking the server for its version: %w", err)
		}
		server := &version.Info{}
		if err := json.Unmarshal(body, server); err != nil {
			return fmt.Errorf("reading the server's version: %w", err)
		}
		versions.Server = server
	}
	if output != "" {
		return env.Print(e.Out, output, versions)
	}
	fmt.Fprintf(e.Out, "Client Version: version.Info%+v\n", versions.Client)
	if versions.Server != nil {
		fmt.Fprintf(e.Out, "Server Version: version.Info%+v\n", *versions.Server)
	}
	return nil
}
