package eventnote

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
)

func TestNotesFit(t *testing.T) {
	for name, c := range map[string]struct{ said, want string }{
		"a sentence":               {"100% of the disk is used", "Warning Why 100% of the disk is used"},
		"as long as is taken":      {strings.Repeat("a", 1024), "Warning Why " + strings.Repeat("a", 1024)},
		"too long":                 {strings.Repeat("a", 1025), "Warning Why " + strings.Repeat("a", 1020) + " …"},
		"cut within a character":   {"a" + strings.Repeat("ä", 1024), "Warning Why a" + strings.Repeat("ä", 509) + " …"},
		"what was no text at once": {strings.Repeat("a", 1019) + "\xff" + strings.Repeat("b", 100), "Warning Why " + strings.Repeat("a", 1019) + " …"},
	} {
		fake := events.NewFakeRecorder(1)
		Fitting(fake).Eventf(nil, nil, corev1.EventTypeWarning, "Why", "Do", "%s", c.said)
		got := <-fake.Events
		if got != c.want {
			t.Errorf("%s: %q (%d bytes)", name, got, len(got))
		}
		if note := strings.TrimPrefix(got, "Warning Why "); len(note) > 1024 || !utf8.ValidString(note) {
			t.Errorf("%s: the API server would refuse %d bytes", name, len(note))
		}
	}
}
