// Package eventnote shortens the notes of Drydock's events to the length that the API server accepts: it refuses an
// event whose note is longer than a kibibyte, and the VM's owner would miss the failures with the longest
// explanations.
//
// Package objectevent cuts the text. This package does not decide which events are reported or to whom.
package eventnote

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"drydock.dev/drydock/internal/rules/object/objectevent"
)

// Fitting returns a recorder that cuts notes to the length that the API server accepts.
func Fitting(r events.EventRecorder) events.EventRecorder { return fitting{r} }

type fitting struct{ recorder events.EventRecorder }

// Eventf implements events.EventRecorder.
//
//nolint:revive // argument-limit: the parameters are the interface's
func (f fitting) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	f.recorder.Eventf(regarding, related, eventtype, reason, action, "%s", objectevent.Fit(fmt.Sprintf(note, args...)))
}
