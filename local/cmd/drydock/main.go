// Command drydock runs a whole Kubernetes on one machine, also as each component of the cluster. Its subcommands
// are in internal/cli.
package main

import (
	"os"

	"drydock.dev/local/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args))
}
