package main

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
	"honnef.co/go/tools/analysis/facts/nilness"
	"honnef.co/go/tools/staticcheck/sa4023"
)

// TestWhatIsKnownOfImportedFunctionsIsStillFound has functions with results that are never nil in a package, in its
// import, and in that one's import. The published analyzer must report the same.
func TestWhatIsKnownOfImportedFunctionsIsStillFound(t *testing.T) {
	t.Run("as published", func(t *testing.T) {
		analysistest.Run(t, analysistest.TestData(), sa4023.Analyzer, "caller")
	})
	gatherFacts(nilness.Analysis)
	t.Run("with gathered facts", func(t *testing.T) {
		analysistest.Run(t, analysistest.TestData(), sa4023.Analyzer, "caller")
	})
}
