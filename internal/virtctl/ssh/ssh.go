// Package ssh is virtctl ssh and scp: the user's OpenSSH client with a machine's port instead of a network. It must
// leave keys, agents, escapes and configuration to OpenSSH.
package ssh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/virtctl/env"
	"drydock.dev/drydock/internal/virtctl/target"
)

// NewCommands returns the package's commands.
func NewCommands(e *env.Env) []*cobra.Command {
	return []*cobra.Command{newSSH(e), newSCP(e)}
}

type settings struct {
	username   string
	identity   string
	knownHosts string
	port       uint16
	// local are options for OpenSSH.
	local []string
}

func (s *settings) addFlags(cmd *cobra.Command, short string) {
	flags := cmd.Flags()
	flags.StringVarP(&s.username, "username", "l", "", "user to log in as; ssh's own configuration decides if it is not set")
	flags.StringVarP(&s.identity, "identity-file", "i", "", "private key to log in with")
	flags.StringVar(&s.knownHosts, "known-hosts", defaultKnownHosts(), "file of the machines' host keys; empty leaves it to ssh, /dev/null accepts any key")
	flags.Uint16VarP(&s.port, "port", short, 22, "port of the SSH server in the guest")
	flags.StringArrayVarP(&s.local, "local-ssh-opts", "t", nil, "option for the local OpenSSH client, as -t '-o StrictHostKeyChecking=no'; may be repeated")
	// Older scripts request the local client, which is the only one.
	flags.Bool("local-ssh", true, "use the local OpenSSH client")
	_ = flags.MarkHidden("local-ssh")
}

// Short-lived machines stay out of the user's file of real hosts.
func defaultKnownHosts() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".ssh", "kubevirt_known_hosts")
}

// OpenSSH uses the first of repeated options, so the user's come first.
func (s *settings) arguments(proxy string) []string {
	arguments := append([]string{"-o", "ProxyCommand=" + proxy}, s.local...)
	if s.knownHosts != "" {
		arguments = append(arguments, "-o", "UserKnownHostsFile="+s.knownHosts)
	}
	if s.knownHosts == os.DevNull {
		// The file is always empty and stores nothing: a user who names it wants no comparison of keys.
		arguments = append(arguments, "-o", "StrictHostKeyChecking=accept-new")
	}
	if s.identity != "" {
		arguments = append(arguments, "-i", s.identity)
	}
	return arguments
}

func newSSH(e *env.Env) *cobra.Command {
	var s settings
	var command string
	cmd := &cobra.Command{
		Use:   "ssh [USER@]" + target.Syntax + " [-- SSH_ARGUMENT...]",
		Short: "Log in to a virtual machine by SSH",
		Long: "Log in to a virtual machine with the local OpenSSH client, through the API server. What follows\n" +
			"-- goes to ssh as it is: a command for the guest, or options of ssh such as -L or -t.",
		Example: e.Example("# Log in to 'vm-cirros' as the user guest:", "ssh guest@vm/vm-cirros",
			"# In another namespace, with a key:", "ssh guest@vmi/vm-cirros/lab --identity-file=~/.ssh/lab",
			"# Run a command:", "ssh guest@vm/vm-cirros --command='uptime'",
			"# Forward a port with ssh's own option:", "ssh guest@vm/vm-cirros -- -L 8080:localhost:80"),
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 && cmd.ArgsLenAtDash() != 1 {
				return fmt.Errorf("argument %q comes too early: what is meant for ssh stands behind --", args[1])
			}
			t, err := login(e, args[0], s.username)
			if err != nil {
				return err
			}
			proxy := proxyCommand(e.Executable, globalFlags(cmd.InheritedFlags()), t, s.port)
			return execute(cmd.Context(), e, "ssh", sshArguments(s, proxy, t, command, args[1:]))
		},
	}
	s.addFlags(cmd, "p")
	cmd.Flags().StringVarP(&command, "command", "c", "", "command to run in the guest instead of a shell")
	return cmd
}

func sshArguments(s settings, proxy string, t target.Target, command string, rest []string) []string {
	arguments := s.arguments(proxy)
	if t.User != "" {
		arguments = append(arguments, "-l", t.User)
	}
	arguments = append(arguments, hostName(t))
	arguments = append(arguments, rest...)
	if command != "" {
		arguments = append(arguments, command)
	}
	return arguments
}

func login(e *env.Env, text, username string) (target.Target, error) {
	t, err := target.ParseLogin(text)
	if err != nil {
		return target.Target{}, err
	}
	if username != "" {
		if t.User != "" && t.User != username {
			return target.Target{}, fmt.Errorf("two users are named: %s@ and --username=%s", t.User, username)
		}
		t.User = username
	}
	namespace, err := e.Namespace()
	if err != nil {
		return target.Target{}, err
	}
	return t.In(namespace), nil
}

func execute(ctx context.Context, e *env.Env, program string, arguments []string) error {
	path, err := exec.LookPath(program)
	if err != nil {
		return fmt.Errorf("finding the program %s: %w: install the OpenSSH client", program, err)
	}
	command := exec.CommandContext(ctx, path, arguments...)
	command.Stdin, command.Stdout, command.Stderr = e.In, e.Out, e.Err
	// SIGTERM, unlike a kill, lets ssh restore the terminal.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 5 * time.Second
	err = command.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ended) && ended.ExitCode() > 0:
		return &env.Ended{Program: program, Code: ended.ExitCode()}
	default:
		return fmt.Errorf("running %s: %w", program, err)
	}
}
