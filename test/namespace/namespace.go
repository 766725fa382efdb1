// Package namespace names the namespaces of the whole-system tests after their tests, so that a process of
// a guest on the machine shows its test. It creates none.
package namespace

import "strings"

// longest leaves room for the API server's suffix, and for names of objects that include the namespace.
const longest = 30

// Prefix returns the prefix of a test's namespaces. A subtest has its test's.
func Prefix(test string) string {
	name, _, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(test, "Test")), "/")
	return "e2e-" + strings.Trim(name[:min(len(name), longest)], "-_") + "-"
}
