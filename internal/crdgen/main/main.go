// Command main writes the generated CustomResourceDefinitions into the folder
// that is its only argument. It must not decide what is in them.
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
	if len(args) != 1 {
		return fmt.Errorf("want one argument, the folder to write to; got %d", len(args))
	}
	files, err := crdgen.Files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return fmt.Errorf("making folder: %w", err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(args[0], name), text, 0o644); err != nil {
			return fmt.Errorf("writing manifest: %w", err)
		}
	}
	return nil
}
