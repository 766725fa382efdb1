// Package env is the environment of a virtctl command: streams, the kubeconfig's settings, its name and terminal.
// Commands take it as a value, so that a test can pass another. It must not contain commands or requests.
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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"drydock.dev/drydock/internal/virtctl/client"
)

// Env is the environment of one call.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	// Flags are kubectl's global flags.
	Flags *genericclioptions.ConfigFlags
	// Program is the user's word: "virtctl" or "kubectl virt".
	Program string
	// Executable is the path of this program.
	Executable string
}

// FromOS returns this process's environment.
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

// kubectl runs the executable kubectl-virt as a plugin.
func programName(argv0 string) string {
	switch name := filepath.Base(argv0); name {
	case "kubectl-virt", "kubectl-virt.exe":
		return "kubectl virt"
	default:
		return "virtctl"
	}
}

// Namespace returns the namespace of the flags, of the kubeconfig's context, or "default".
func (e *Env) Namespace() (string, error) {
	namespace, _, err := e.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the namespace from the kubeconfig: %w", err)
	}
	return namespace, nil
}

// ErrNoCluster means that neither flags nor a kubeconfig name a cluster.
var ErrNoCluster = errors.New("no cluster is named: there is no kubeconfig, or it is empty")

// Config returns the settings of requests to the named cluster, with the user's credentials.
func (e *Env) Config() (*rest.Config, error) {
	config, err := e.Flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	raw, err := e.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	// Without settings, the loader assumes a server on this machine, whose error would not name the missing
	// setting.
	guessed := config.Host == clientcmd.ClusterDefaults.Server
	if guessed && len(raw.Clusters) == 0 && *e.Flags.APIServer == "" && os.Getenv("KUBERNETES_MASTER") == "" {
		return nil, ErrNoCluster
	}
	config.UserAgent = "virtctl"
	// The server limits requests itself, and a diagnosis has many.
	config.QPS, config.Burst = 50, 300
	return config, nil
}

// Client returns a client of the named cluster.
func (e *Env) Client() (*client.Client, error) {
	config, err := e.Config()
	if err != nil {
		return nil, err
	}
	return client.New(config)
}

// Connect is Namespace and Client together.
func (e *Env) Connect() (*client.Client, string, error) {
	namespace, err := e.Namespace()
	if err != nil {
		return nil, "", err
	}
	c, err := e.Client()
	return c, namespace, err
}

// Terminal returns the file descriptor of the input, and whether it is a terminal.
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

// Example indents lines and prefixes them with the program's name.
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

// MinimumArgs is cobra.MinimumNArgs, but names the missing argument.
func MinimumArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return fmt.Errorf("%s is missing; usage: %s", names[len(args)], cmd.UseLine())
		}
		return nil
	}
}

// ExactArgs is cobra.ExactArgs, but names the missing argument.
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
