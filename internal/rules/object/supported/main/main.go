// Command main writes the page on supported fields to the file that is its argument. It must not decide its content.
package main

import (
	"fmt"
	"os"

	"drydock.dev/drydock/internal/rules/object/supported"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "supported: want one argument, the file to write")
		os.Exit(1)
	}
	if err := os.WriteFile(os.Args[1], supported.Document(), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "supported: writing the page:", err)
		os.Exit(1)
	}
}
