// Package expand is virtctl expand: it prints a machine with its instance type and preference expanded. The
// server expands; this package must not decide or change anything.
package expand

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

type options struct{ vm, file, output string }

// NewCommand returns the command.
func NewCommand(e *env.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "expand",
		Short: "Print a VirtualMachine with its instance type and preference written out",
		Example: e.Example("# A machine of the cluster:", "expand --vm=vm-cirros",
			"# One that is not created yet, to see what it would be:", "expand --file=vm.yaml",
			"create vm --instancetype=u1.medium --volume-pvc=src:data | "+e.Program+" expand --file=-"),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), e, o) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.vm, "vm", "", "name of a machine of the cluster")
	flags.StringVarP(&o.file, "file", "f", "", "manifest of a machine; - is standard input")
	flags.StringVarP(&o.output, "output", "o", "yaml", "json or yaml")
	cmd.MarkFlagsMutuallyExclusive("vm", "file")
	return cmd
}

func run(ctx context.Context, e *env.Env, o options) error {
	if err := env.CheckFormat(o.output); err != nil {
		return err
	}
	var answer []byte
	var err error
	switch {
	case o.vm != "":
		answer, err = expandVM(ctx, e, o.vm)
	case o.file != "":
		answer, err = expandFile(ctx, e, o.file)
	default:
		return fmt.Errorf("say what to expand: a machine with --vm, or a manifest with --file")
	}
	if err != nil {
		return err
	}
	// Decoding would lose fields of a newer server.
	return env.Print(e.Out, o.output, json.RawMessage(answer))
}

func expandVM(ctx context.Context, e *env.Env, name string) ([]byte, error) {
	c, namespace, err := e.Connect()
	if err != nil {
		return nil, err
	}
	answer, err := c.Get(ctx, client.Ref{Resource: client.VirtualMachines, Namespace: namespace, Name: name}, "expand-spec")
	if err != nil {
		return nil, fmt.Errorf("expanding VM %s: %w", name, err)
	}
	return answer, nil
}

// maxManifest is the server's limit.
const maxManifest = 3 << 20

func expandFile(ctx context.Context, e *env.Env, path string) ([]byte, error) {
	manifest, err := read(e, path)
	if err != nil {
		return nil, err
	}
	body, err := yaml.YAMLToJSON(manifest)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	var given struct {
		Kind     string `json:"kind"`
		Metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &given); err != nil || given.Kind != "VirtualMachine" {
		return nil, fmt.Errorf("reading %s: it must be the manifest of one VirtualMachine", path)
	}
	c, namespace, err := e.Connect()
	if err != nil {
		return nil, err
	}
	if given.Metadata.Namespace != "" && *e.Flags.Namespace == "" {
		namespace = given.Metadata.Namespace
	}
	answer, err := c.ExpandSpec(ctx, namespace, body)
	if err != nil {
		return nil, fmt.Errorf("expanding VM %s of %s: %w", given.Metadata.Name, path, err)
	}
	return answer, nil
}

func read(e *env.Env, path string) ([]byte, error) {
	from := e.In
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("reading the manifest: %w", err)
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	manifest, err := io.ReadAll(io.LimitReader(from, maxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(manifest) > maxManifest {
		return nil, fmt.Errorf("reading %s: it is larger than %d bytes", path, maxManifest)
	}
	return manifest, nil
}
