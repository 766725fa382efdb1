// Command drydock runs a whole Kubernetes on one machine.
package main

import (
	"os"

	"drydock.dev/local/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args))
}
