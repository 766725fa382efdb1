// Package eventnote shortens events' notes: the API server refuses one that is longer than a kibibyte. It must not decide
// which events are reported. objectevent cuts the text.
package eventnote

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"drydock.dev/drydock/internal/rules/object/objectevent"
)

// Fitting returns a recorder that cuts notes to the API server's limit.
func Fitting(r events.EventRecorder) events.EventRecorder { return fitting{r} }

type fitting struct{ recorder events.EventRecorder }

// Eventf implements events.EventRecorder.
//
//nolint:revive // argument-limit: the parameters are the interface's
func (f fitting) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	f.recorder.Eventf(regarding, related, eventtype, reason, action, "%s", objectevent.Fit(fmt.Sprintf(note, args...)))
}
