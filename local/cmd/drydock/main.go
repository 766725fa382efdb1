// Command drydock runs a whole Kubernetes on one machine. Its subcommands are in internal/cli. The
// same binary also runs as each component of the cluster.
package main

import (
	"os"

	"drydock.dev/local/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args))
}
