// Command lint is golangci-lint with fewer facts to copy between packages. It must not change a finding.
package main

import (
	"fmt"
	"os"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"
	"honnef.co/go/tools/analysis/facts/nilness"
)

func main() {
	gatherFacts(nilness.Analysis)
	// Without a version its cache key depends on this program's content.
	if err := commands.Execute(commands.BuildInfo{}); err != nil {
		fmt.Fprintf(os.Stderr, "linting: %v\n", err)
		os.Exit(exitcodes.Failure)
	}
}
