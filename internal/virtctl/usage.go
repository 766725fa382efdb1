package virtctl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// The global flags would outnumber the command's own. `virtctl options` lists them.
func usage(cmd *cobra.Command) error {
	var text strings.Builder
	text.WriteString("Usage:\n")
	if cmd.Runnable() {
		fmt.Fprintf(&text, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&text, "  %s [command]\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&text, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		text.WriteString("\nAvailable Commands:\n")
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			fmt.Fprintf(&text, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
		}
	}
	if flags := cmd.NonInheritedFlags(); cmd.HasParent() && flags.HasAvailableFlags() {
		fmt.Fprintf(&text, "\nFlags:\n%s", flags.FlagUsages())
	}
	root := cmd.Root().CommandPath()
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&text, "\nUse \"%s [command] --help\" for more about a command.", cmd.CommandPath())
	}
	fmt.Fprintf(&text, "\nUse \"%s options\" for the flags that all commands take.\n", root)
	_, err := fmt.Fprint(cmd.OutOrStderr(), text.String())
	return err
}

func newOptions() *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that all commands take",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "Every command takes these flags:\n\n%s",
				cmd.Root().PersistentFlags().FlagUsages())
			return err
		},
	}
}
