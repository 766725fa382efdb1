//go:build e2e

package e2e

import "testing"

// onlyInTestAll skips a test in `make test`, where cheaper tests cover the same behavior: this one runs longer,
// repeats more often, or covers more cases (docs/decisions/609-each-test-at-its-level.md).
func onlyInTestAll(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
}

// A chapter starts from the state that the ones before it left.
type chapter struct {
	name string
	run  func(*testing.T)
}

func inTurn(t *testing.T, chapters ...chapter) {
	t.Helper()
	for _, c := range chapters {
		if !t.Run(c.name, c.run) {
			t.FailNow()
		}
	}
}
