// Command virt-launcher is the launcher pod's one process beside QEMU.
package main

import (
	"context"
	"fmt"
	"os"

	"drydock.dev/drydock/internal/launcher"
)

func main() {
	code, err := launcher.Main(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "virt-launcher:", err)
	}
	os.Exit(code)
}
