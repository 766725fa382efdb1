// Package cli is the drydock command's user interface. Each command has one function that parses and one that
// runs. It must make no decisions: the packages behind it do.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/environ"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/nodeinit"
	"drydock.dev/local/internal/prerequisites"
	"drydock.dev/local/internal/supervisor"
	"drydock.dev/local/internal/upstream"
	"drydock.dev/local/internal/version"
)

type options struct {
	name, dir string
	out, err  io.Writer
}

// Main runs the program of the arguments and returns its exit code.
func Main(args []string) int {
	// After a plain su, PATH lacks the folders with root's programs.
	if err := os.Setenv("PATH", prerequisites.CompletePath(os.Getenv("PATH"))); err != nil {
		return exitCode(fmt.Errorf("completing the PATH: %w", err))
	}
	if len(args) > 1 {
		switch name := args[1]; {
		case upstream.Is(name):
			return upstream.Run(name, args[2:])
		case name == nodeinit.Command:
			return exitCode(nodeinit.Run(args[2:]))
		case name == supervisor.Command:
			return exitCode(supervisor.Run(args[2:]))
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program
	upstream.HideFlags()
	root := newRoot(os.Stdout, os.Stderr)
	root.SetArgs(args[1:])
	return exitCode(root.ExecuteContext(ctx))
}

// codeError is the exit code of a program that has printed its error itself.
type codeError int

func (e codeError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func exitCode(err error) int {
	var code codeError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintf(os.Stderr, "drydock: %v\n", err)
	return 1
}

func newRoot(out, errOut io.Writer) *cobra.Command {
	o := &options{out: out, err: errOut}
	root := &cobra.Command{
		Use:   "drydock",
		Short: "A whole Kubernetes on one machine, with nothing installed",
		// kubectl parses its own flags; ours come before its name.
		TraverseChildren: true,
		SilenceUsage:     true,
		SilenceErrors:    true,
		Version:          version.Version,
		RunE:             group,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			dir, err := filepath.Abs(o.dir)
			if err != nil {
				return fmt.Errorf("finding the data folder: %w", err)
			}
			o.dir = dir
			return layout.Check(o.name, o.dir)
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&o.dir, "dir", fromEnv("DRYDOCK_DIR", layout.DefaultDir), "data folder of the cluster (DRYDOCK_DIR)")
	flags.StringVar(&o.name, "name", fromEnv("DRYDOCK_NAME", layout.DefaultName), "name of the cluster (DRYDOCK_NAME)")
	root.SetVersionTemplate(version.Text())
	root.AddCommand(newRun(o), newUp(o), newDown(o), newStatus(o), newKubectl(o), newImage(o), newDeploy(o), newNode(o), newVersion(o))
	return root
}

func newVersion(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of Drydock and of the Kubernetes in it",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(o.out, version.Text())
			return err
		},
	}
}

// group runs a command that has only subcommands, without a known one of them.
func group(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown command %q for %q; drydock --help lists what there is", args[0], cmd.CommandPath())
	}
	return cmd.Help()
}

func fromEnv(variable, otherwise string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	return otherwise
}

// cluster reads the record of a cluster and returns an error if there is none.
func (o *options) cluster() (layout.Cluster, error) {
	c, found, err := layout.Load(o.name, o.dir)
	if err == nil && !found {
		err = fmt.Errorf("looking for cluster %s: there is none in %s; make one with: drydock up", o.name, o.dir)
	}
	if err == nil {
		err = reachDirectly(c)
	}
	return c, err
}

// reachDirectly keeps our and kubectl's connections to the cluster off a proxy in the user's
// environment. It must run before the first connection.
func reachDirectly(c layout.Cluster) error {
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		if err := os.Setenv(name, environ.Direct(c, os.Environ())); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}
