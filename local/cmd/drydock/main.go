// Command drydock runs a whole Kubernetes on one machine. Its subcommands are in
// internal/cli; the same binary, called again, is each component of the cluster.
package main

import (
	"os"

	"drydock.dev/local/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args))
}
