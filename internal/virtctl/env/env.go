// Package env is the environment of a virtctl command: streams, the
// kubeconfig's settings, the name it was called by and whether there is a
// terminal. Commands take it as a value, so that a test can pass another. It
// holds no command and no request.
package env

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"

	"drydock.dev/drydock/internal/virtctl/client"
)

// Env is the environment of one call of virtctl.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	// Flags are kubectl's global flags.
	Flags *genericclioptions.ConfigFlags
	// Program is how the user called virtctl: "virtctl" or "kubectl virt".
	Program string
	// Executable is the path that starts this program again.
	Executable string
}

// FromOS is the environment of this process.
func FromOS() *Env {
	e := &Env{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Flags:      genericclioptions.NewConfigFlags(true),
		Program:    programName(os.Args[0]),
		Executable: os.Args[0],
	}
	if path, err := os.Executable(); err == nil {
		e.Executable = path
	}
	return e
}

// programName turns kubectl's way to call a plugin, an executable kubectl-virt,
// into what the user typed.
func programName(argv0 string) string {
	switch name := filepath.Base(argv0); name {
	case "kubectl-virt", "kubectl-virt.exe":
		return "kubectl virt"
	default:
		return "virtctl"
	}
}

// Namespace is the namespace of the flags, of the kubeconfig's context, or
// "default".
func (e *Env) Namespace() (string, error) {
	namespace, _, err := e.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the namespace from the kubeconfig: %w", err)
	}
	return namespace, nil
}

// ErrNoCluster is the answer where neither a flag nor a kubeconfig names a cluster.
var ErrNoCluster = errors.New("no cluster is named: there is no kubeconfig, or it is empty")

// Client connects to the cluster that the flags and the kubeconfig name.
func (e *Env) Client() (*client.Client, error) {
	config, err := e.Flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	raw, err := e.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	// Without any word of the user's the loader guesses at a server on this
	// machine, whose refusal would not name what is missing.
	guessed := config.Host == clientcmd.ClusterDefaults.Server
	if guessed && len(raw.Clusters) == 0 && *e.Flags.APIServer == "" && os.Getenv("KUBERNETES_MASTER") == "" {
		return nil, ErrNoCluster
	}
	config.UserAgent = "virtctl"
	return client.New(config)
}

// Connect is Namespace and Client together, which nearly every command wants.
func (e *Env) Connect() (*client.Client, string, error) {
	namespace, err := e.Namespace()
	if err != nil {
		return nil, "", err
	}
	c, err := e.Client()
	return c, namespace, err
}

// Terminal returns the file descriptor of the input, and whether it is a
// terminal.
func (e *Env) Terminal() (fd int, isTerminal bool) { return terminal(e.In) }

// OutTerminal is Terminal for the output.
func (e *Env) OutTerminal() (fd int, isTerminal bool) { return terminal(e.Out) }

func terminal(stream any) (fd int, isTerminal bool) {
	file, isFile := stream.(*os.File)
	if !isFile {
		return 0, false
	}
	fd = int(file.Fd())
	return fd, term.IsTerminal(fd)
}

// Example indents an example's lines and puts the program's name in front.
func (e *Env) Example(lines ...string) string {
	text := ""
	for i, line := range lines {
		if i > 0 {
			text += "\n"
		}
		if line == "" || line[0] == '#' {
			text += "  " + line
			continue
		}
		text += "  " + e.Program + " " + line
	}
	return text
}

// MinimumArgs is cobra.MinimumNArgs with an error that names what is missing.
func MinimumArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return fmt.Errorf("%s is missing; usage: %s", names[len(args)], cmd.UseLine())
		}
		return nil
	}
}

// ExactArgs is cobra.ExactArgs with an error that names what is missing.
func ExactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := MinimumArgs(names...)(cmd, args); err != nil {
			return err
		}
		if len(args) > len(names) {
			return fmt.Errorf("argument %q is one too many; usage: %s", args[len(names)], cmd.UseLine())
		}
		return nil
	}
}
