// Command main generates from the table of the writers of a VMI's status its part of the page in the first argument,
// and the admission policy in the second. It must not decide their content.
package main

import (
	"fmt"
	"os"

	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "vmistatus: want two arguments, the page and the file of the policy")
		os.Exit(1)
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "vmistatus:", err)
		os.Exit(1)
	}
}

func generate(page, policy string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	if text, err = vmistatus.InPage(text); err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	if err := os.WriteFile(page, text, 0o644); err != nil {
		return err
	}
	return os.WriteFile(policy, vmistatus.Policy(), 0o644)
}
