// Command virt-launcher is the launcher pod's only process beside QEMU.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"drydock.dev/drydock/internal/launcher"
)

func main() {
	name := filepath.Base(os.Args[0])
	code, err := launcher.Main(context.Background(), name, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
	}
	os.Exit(code)
}
