// Command main writes the table of a guest's identity into the page that is its argument. It must not decide the
// content of the table.
package main

import (
	"fmt"
	"os"

	"drydock.dev/drydock/internal/rules/machine/identity"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "identity: want one argument, the page")
		os.Exit(1)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "identity:", err)
		os.Exit(1)
	}
}

func generate(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	if text, err = identity.InPage(text); err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, text, 0o644)
}
