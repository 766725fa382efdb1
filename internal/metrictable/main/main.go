// Command main generates the tables of metrics in the page that is its argument. It must not decide their content.
package main

import (
	"fmt"
	"os"

	"drydock.dev/drydock/internal/metrictable"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "metrictable: want one argument, the page")
		os.Exit(1)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "metrictable:", err)
		os.Exit(1)
	}
}

func generate(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	if text, err = metrictable.InPage(text); err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, text, 0o644)
}
