package ssh

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/virtctl/env"
	"drydock.dev/drydock/internal/virtctl/target"
)

func newSCP(e *env.Env) *cobra.Command {
	var s settings
	var recursive, preserve bool
	remote := "[USER@]" + target.Syntax + ":PATH"
	cmd := &cobra.Command{
		Use:   "scp SOURCE DESTINATION",
		Short: "Copy files to and from a virtual machine by SSH",
		Long:  "Copy files with the local OpenSSH client, through the API server. One side is a local path, the\nother is " + remote + ".",
		Example: e.Example("# Copy a file to 'vm-cirros':", "scp notes.txt guest@vm/vm-cirros:/tmp/notes.txt",
			"# Copy a folder from it:", "scp --recursive guest@vmi/vm-cirros/lab:/var/log logs"),
		Args: env.ExactArgs("SOURCE", "DESTINATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := parseCopy(args[0], args[1])
			if err != nil {
				return err
			}
			t, err := login(e, c.machine, s.username)
			if err != nil {
				return err
			}
			proxy := proxyCommand(e.Executable, globalFlags(cmd.InheritedFlags()), t, s.port)
			arguments := s.arguments(proxy)
			if recursive {
				arguments = append(arguments, "-r")
			}
			if preserve {
				arguments = append(arguments, "-p")
			}
			return execute(cmd.Context(), e, "scp", append(arguments, c.paths(t)...))
		},
	}
	s.addFlags(cmd, "P")
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy folders with all that is in them")
	cmd.Flags().BoolVarP(&preserve, "preserve", "p", false, "keep times and modes")
	return cmd
}

type transfer struct {
	machine           string
	local, remotePath string
	upload            bool
}

func parseCopy(source, destination string) (transfer, error) {
	fromMachine, fromPath, fromRemote := splitRemote(source)
	toMachine, toPath, toRemote := splitRemote(destination)
	switch {
	case fromRemote && toRemote:
		return transfer{}, fmt.Errorf("both %q and %q are on machines: copy to a local path first", source, destination)
	case fromRemote:
		return transfer{machine: fromMachine, local: destination, remotePath: fromPath}, nil
	case toRemote:
		return transfer{machine: toMachine, local: source, remotePath: toPath, upload: true}, nil
	default:
		return transfer{}, fmt.Errorf("neither %q nor %q is on a machine: write one as [USER@]%s:PATH", source, destination, target.Syntax)
	}
}

// Before the colon is a target, which has a slash and never begins with a dot or a slash.
func splitRemote(text string) (machine, path string, remote bool) {
	machine, path, remote = strings.Cut(text, ":")
	if !remote || strings.HasPrefix(machine, ".") || strings.HasPrefix(machine, "/") {
		return "", "", false
	}
	return machine, path, strings.Contains(machine, "/")
}

func (c transfer) paths(t target.Target) []string {
	remote := hostName(t) + ":" + c.remotePath
	if t.User != "" {
		remote = t.User + "@" + remote
	}
	if c.upload {
		return []string{c.local, remote}
	}
	return []string{remote, c.local}
}
