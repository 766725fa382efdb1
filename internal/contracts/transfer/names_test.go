package transfer

import (
	"regexp"
	"strings"
	"testing"
)

func TestUploadNameIsAServicesName(t *testing.T) {
	label := regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	seen := map[string]string{}
	long := strings.Repeat("a", 100)
	for _, claim := range []string{"disk", "my.disk", "my-disk", long, long + "b", strings.Repeat("a.", 60) + "a", strings.Repeat("b", 41) + "-" + long} {
		name := UploadName(claim)
		if len(name) > 63 || !label.MatchString(name) {
			t.Errorf("claim %s: %s is no Service's name", claim, name)
		}
		if other, taken := seen[name]; taken {
			t.Errorf("claims %s and %s share the name %s", claim, other, name)
		}
		seen[name] = claim
	}
	if got := UploadName("disk"); got != "cdi-upload-disk" {
		t.Errorf("claim disk: %s, want cdi-upload-disk", got)
	}
}
