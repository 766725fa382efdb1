package validate

import (
	"strings"
	"testing"
)

// Checksums are printed in either case; the worker compares their values.
func TestWhichChecksumsAreTaken(t *testing.T) {
	for sum, want := range map[string]bool{
		"sha256:" + strings.Repeat("ab", 32): true,
		"sha256:" + strings.Repeat("AB", 32): true,
		"SHA256:" + strings.Repeat("Ab", 32): true,
		"md5:" + strings.Repeat("AB", 16):    true,
		"sha256:" + strings.Repeat("AB", 16): false,
		"sha256:" + strings.Repeat("AG", 32): false,
		strings.Repeat("ab", 32):             false,
	} {
		if got := sums.MatchString(sum); got != want {
			t.Errorf("%s: %v", sum, got)
		}
	}
}
