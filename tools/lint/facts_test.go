package main

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
	"honnef.co/go/tools/analysis/facts/nilness"
	"honnef.co/go/tools/staticcheck/sa4023"
)

// TestWhatIsKnownOfImportedFunctionsIsStillFound has functions whose results are never nil in a
// package, in one that it imports, and in one that this imports.
func TestWhatIsKnownOfImportedFunctionsIsStillFound(t *testing.T) {
	gatherFacts(nilness.Analysis)
	analysistest.Run(t, analysistest.TestData(), sa4023.Analyzer, "caller")
}
