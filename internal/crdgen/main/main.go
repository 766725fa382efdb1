// Command main writes the generated CustomResourceDefinitions into the folders in its arguments: the first for
// Drydock's own kinds, the second for CDI's. It must not decide their content.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"drydock.dev/drydock/internal/crdgen"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "crdgen:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want two arguments, the folders to write to; got %d", len(args))
	}
	for i, generate := range []func() (map[string][]byte, error){crdgen.Files, crdgen.CDIFiles} {
		files, err := generate()
		if err != nil {
			return err
		}
		if err := os.MkdirAll(args[i], 0o755); err != nil {
			return fmt.Errorf("making folder: %w", err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(args[i], name), text, 0o644); err != nil {
				return fmt.Errorf("writing manifest: %w", err)
			}
		}
	}
	return nil
}
