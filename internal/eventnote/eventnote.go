// Package eventnote shortens the notes of Drydock's events to the length that the
// API server accepts: it refuses an event whose note is longer than a kibibyte, and
// the VM's owner would miss the failures with the longest explanations.
//
// The cut itself is package objectevent's. It does not decide what is reported or to whom.
package eventnote

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"drydock.dev/drydock/internal/rules/objectevent"
)

// Fitting is the recorder with notes cut to what the API server takes.
func Fitting(r events.EventRecorder) events.EventRecorder { return fitting{r} }

type fitting struct{ recorder events.EventRecorder }

// Eventf implements events.EventRecorder.
//
//nolint:revive // argument-limit: the parameters are the interface's
func (f fitting) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	f.recorder.Eventf(regarding, related, eventtype, reason, action, "%s", objectevent.Fit(fmt.Sprintf(note, args...)))
}
