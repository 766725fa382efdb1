//go:build e2e

package e2e

import "testing"

// onlyInTestAll skips a test in `make test`: what it shows is shown there by cheaper tests as well, on this level or on a
// lower one, and it looks longer, or oftener, or at more of the same (docs/decisions/609-each-test-at-its-level.md).
func onlyInTestAll(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
}

// chapter is a part of a test that begins with what the parts before it have left.
type chapter struct {
	name string
	run  func(*testing.T)
}

// inTurn runs chapters, up to the first that fails.
func inTurn(t *testing.T, chapters ...chapter) {
	t.Helper()
	for _, c := range chapters {
		if !t.Run(c.name, c.run) {
			t.FailNow()
		}
	}
}
