// Command main generates Grafana's dashboards in the folder that is its argument. It must not decide their content.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"drydock.dev/drydock/internal/dashboards"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "dashboards: want one argument, the folder")
		os.Exit(1)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

func generate(folder string) error {
	for _, d := range dashboards.All() {
		text, err := d.JSON()
		if err != nil {
			return fmt.Errorf("the dashboard %s: %w", d.Name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, d.Name+".json"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
