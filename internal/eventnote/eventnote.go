// Package eventnote shortens the notes of Drydock's events to the length that the
// API server accepts: it refuses an event whose note is longer than a kibibyte, and
// the VM's owner would miss the failures with the longest explanations.
//
// It owns the cut. It does not decide what is reported or to whom.
package eventnote

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// maxNote is how many bytes the API server takes (events.k8s.io/v1).
const maxNote = 1024

// cut stands for what is left out.
const cut = " …"

// Fitting is the recorder with notes cut to what the API server takes.
func Fitting(r events.EventRecorder) events.EventRecorder { return fitting{r} }

type fitting struct{ recorder events.EventRecorder }

// Eventf implements events.EventRecorder.
//
//nolint:revive // argument-limit: the parameters are the interface's
func (f fitting) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	f.recorder.Eventf(regarding, related, eventtype, reason, action, "%s", fit(fmt.Sprintf(note, args...)))
}

// fit keeps the beginning, which says what failed.
func fit(note string) string {
	if len(note) <= maxNote {
		return note
	}
	return strings.ToValidUTF8(note[:maxNote-len(cut)], "") + cut
}
