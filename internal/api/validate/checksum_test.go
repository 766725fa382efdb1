package validate

import (
	"strings"
	"testing"
)

// Sums are printed with digits of either case; the worker compares what they mean.
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
