// Command virtctl manages virtual machines from the command line. As kubectl-virt it is a plugin of
// kubectl.
package main

import (
	"os"

	"drydock.dev/drydock/internal/virtctl"
)

func main() {
	os.Exit(virtctl.Main())
}
