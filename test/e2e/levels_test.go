//go:build e2e

package e2e

import "testing"

// onlyInTestAll skips a test in `make test`. There cheaper tests cover the same behavior, on this level or on a lower
// one; this test runs longer, repeats more often, or covers more cases (docs/decisions/609-each-test-at-its-level.md).
func onlyInTestAll(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
}

// chapter is a part of a test that starts from the state that the parts before it left.
type chapter struct {
	name string
	run  func(*testing.T)
}

// inTurn runs chapters up to the first that fails.
func inTurn(t *testing.T, chapters ...chapter) {
	t.Helper()
	for _, c := range chapters {
		if !t.Run(c.name, c.run) {
			t.FailNow()
		}
	}
}
