package repository

import (
	"go/ast"
	"testing"
)

func TestPropertiesAreCheckedByPropertytest(t *testing.T) {
	const home = "internal/propertytest"
	checksItself := func(n ast.Node) bool { return named(n, "rapid", "Check") || named(n, "rapid", "MakeCheck") }
	atHome := false
	for dir, files := range parsedPackages(t) {
		for _, file := range files {
			switch {
			case !contains(file.File, checksItself):
			case dir == home:
				atHome = true
			default:
				t.Errorf("%s: a test calls rapid.Check; use propertytest.Check", dir)
			}
		}
	}
	if !atHome {
		t.Errorf("rapid.Check is not found in %s: the test looks for the wrong thing", home)
	}
}
