// Package objectevent chooses the newest warning about an object and bounds its text. It must not call the API server:
// internal/controller/objectevents does. Everybody who may create events in a namespace may write any text there, so
// events only inform a status and decide nothing.
package objectevent

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Warning is the content of an event, such as why a volume is not mounted or a claim is not bound.
type Warning struct{ Reason, Message string }

// WarningsAbout returns the field selector of an object's warnings.
func WarningsAbout(uid types.UID) map[string]string {
	return map[string]string{"involvedObject.uid": string(uid), "type": corev1.EventTypeWarning}
}

// NewestWarning returns the last seen warning, bounded by Fit, nil for none. At equal times (the kubelet's have whole
// seconds) the last written one counts, and if that can't be compared, the later one of the list.
func NewestWarning(events []corev1.Event) *Warning {
	var newest *corev1.Event
	for i := range events {
		e := &events[i]
		if e.Type == corev1.EventTypeWarning && (newest == nil || !before(e, newest)) {
			newest = e
		}
	}
	if newest == nil {
		return nil
	}
	return &Warning{Reason: Fit(newest.Reason), Message: Fit(newest.Message)}
}

func before(a, b *corev1.Event) bool {
	if at, other := LastOccurrence(a), LastOccurrence(b); !at.Equal(other) {
		return at.Before(other)
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// LastOccurrence returns when an event was last seen. Writers of events.k8s.io/v1 (the scheduler) count repetitions in a
// series and leave LastTimestamp empty; EventTime is the first occurrence.
func LastOccurrence(e *corev1.Event) time.Time {
	latest := e.LastTimestamp.Time
	if e.EventTime.After(latest) {
		latest = e.EventTime.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(latest) {
		latest = e.Series.LastObservedTime.Time
	}
	if latest.IsZero() {
		return e.CreationTimestamp.Time
	}
	return latest
}

// maxNote is the API server's limit in bytes for an event's note (events.k8s.io/v1). The older API has none.
const maxNote = 1024

const cut = " …"

// Fit truncates a note to the API server's limit. It keeps the beginning, which names the failure.
func Fit(note string) string {
	if len(note) <= maxNote {
		return note
	}
	return strings.ToValidUTF8(note[:maxNote-len(cut)], "") + cut
}
