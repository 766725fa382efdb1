// Package namespace names the namespaces of the whole-system tests after their tests, so that a guest's process
// shows its test. It must create none.
package namespace

import "strings"

// longest leaves room for the API server's suffix, and for names that include the namespace.
const longest = 30

// Prefix returns the prefix of a test's namespaces. A subtest has its test's.
func Prefix(test string) string {
	name, _, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(test, "Test")), "/")
	return "e2e-" + strings.Trim(name[:min(len(name), longest)], "-_") + "-"
}
