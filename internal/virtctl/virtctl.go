// Package virtctl is the command line: it assembles the commands, and converts an error into a message and an
// exit code. It must not implement a command: the package of its name does.
package virtctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/virtctl/advice"
	"drydock.dev/drydock/internal/virtctl/configuration"
	"drydock.dev/drydock/internal/virtctl/console"
	"drydock.dev/drydock/internal/virtctl/create"
	"drydock.dev/drydock/internal/virtctl/credentials"
	"drydock.dev/drydock/internal/virtctl/describe"
	"drydock.dev/drydock/internal/virtctl/diagnose"
	"drydock.dev/drydock/internal/virtctl/env"
	"drydock.dev/drydock/internal/virtctl/expand"
	"drydock.dev/drydock/internal/virtctl/expose"
	"drydock.dev/drydock/internal/virtctl/guest"
	"drydock.dev/drydock/internal/virtctl/imageupload"
	"drydock.dev/drydock/internal/virtctl/maintenance"
	"drydock.dev/drydock/internal/virtctl/memorydump"
	"drydock.dev/drydock/internal/virtctl/migrate"
	"drydock.dev/drydock/internal/virtctl/pending"
	"drydock.dev/drydock/internal/virtctl/portforward"
	"drydock.dev/drydock/internal/virtctl/power"
	"drydock.dev/drydock/internal/virtctl/ssh"
	"drydock.dev/drydock/internal/virtctl/version"
	"drydock.dev/drydock/internal/virtctl/vnc"
	"drydock.dev/drydock/internal/virtctl/volume"
	"drydock.dev/drydock/internal/virtctl/web"
)

// Main runs the command line and returns its exit code.
func Main() int {
	// ssh ends a ProxyCommand by SIGHUP, so it keeps its default action.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	e := env.FromOS()
	return report(e, New(e).ExecuteContext(ctx))
}

// New returns the root command.
func New(e *env.Env) *cobra.Command {
	root := &cobra.Command{
		// cobra uses the first word as the name; the annotation has all of it.
		Use:           strings.Fields(e.Program)[0],
		Short:         "Work with virtual machines on Kubernetes",
		Long:          e.Program + " does to virtual machines what kubectl has no verb for.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: e.Program},
	}
	root.SetIn(e.In)
	root.SetOut(e.Out)
	root.SetErr(e.Err)
	e.Flags.AddFlags(root.PersistentFlags())
	root.AddCommand(power.NewCommands(e)...)
	root.AddCommand(migrate.NewCommands(e)...)
	root.AddCommand(guest.NewCommands(e)...)
	root.AddCommand(volume.NewCommands(e)...)
	root.AddCommand(ssh.NewCommands(e)...)
	root.AddCommand(maintenance.NewCommands(e)...)
	root.AddCommand(
		newAdm(e),
		configuration.NewDevices(e),
		create.NewCommand(e),
		credentials.NewCommand(e),
		console.NewCommand(e),
		describe.NewCommand(e),
		vnc.NewCommand(e),
		portforward.NewCommand(e),
		expand.NewCommand(e),
		expose.NewCommand(e),
		imageupload.NewCommand(e),
		memorydump.NewCommand(e),
		pending.NewCommand(e),
		version.NewCommand(e),
		web.NewCommand(e),
		newOptions(),
	)
	root.AddCommand(newRefused()...)
	root.SetUsageFunc(usage)
	return root
}

func newAdm(e *env.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adm",
		Short: "Diagnose the installation, look at its configuration, and change it",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(configuration.NewVerbosity(e), diagnose.NewCommand(e))
	return cmd
}

// report prints an error and the next step. A program that virtctl ran for the user, such as ssh, or a command that has
// an exit code of its own, has printed everything already.
func report(e *env.Env, err error) int {
	var ended *env.Ended
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return ended.Code
	}
	for i, line := range strings.Split(strings.TrimSuffix(err.Error(), "\n"), "\n") {
		if i == 0 {
			line = "error: " + line
		}
		fmt.Fprintln(e.Err, plainLine(line))
	}
	next := advice.For(err)
	var refused *refusal
	if errors.As(err, &refused) {
		next = refused.instead
	}
	if next != "" {
		fmt.Fprintf(e.Err, "next: %s\n", strings.ReplaceAll(next, "'virtctl ", "'"+e.Program+" "))
	}
	return 1
}

// plainLine returns a line that no terminal obeys, indented as it was: a server's words may be in it.
func plainLine(line string) string {
	bare := strings.TrimLeft(line, " \t")
	return line[:len(line)-len(bare)] + env.Plain(bare)
}
