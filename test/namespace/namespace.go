// Package namespace names the namespaces of the whole-system tests for their tests, so that
// whoever sees a guest on the machine knows whose it is. It makes none.
package namespace

import "strings"

// longest leaves room for what the API server appends to a name, and for the names of objects that bear it.
const longest = 30

// Prefix returns how the names of a test's namespaces begin. Of a subtest it is the one of its test.
func Prefix(test string) string {
	name, _, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(test, "Test")), "/")
	return "e2e-" + strings.Trim(name[:min(len(name), longest)], "-_") + "-"
}
