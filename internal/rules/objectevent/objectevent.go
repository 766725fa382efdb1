// Package objectevent reads events about an object.
//
// It owns which of several warnings is the newest, and how much of a note is passed
// on. It is pure: internal/controller/objectevents asks the API server. Events are
// anybody's words: whoever may make events in a namespace may say what he likes there,
// so nothing is decided by them but what a status tells.
package objectevent

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Warning is what an event says: why a volume is not mounted, a claim is not bound.
type Warning struct{ Reason, Message string }

// WarningsAbout are the fields by which the API server selects an object's warnings.
func WarningsAbout(uid types.UID) map[string]string {
	return map[string]string{"involvedObject.uid": string(uid), "type": corev1.EventTypeWarning}
}

// NewestWarning returns the warning that was seen last, nil when there is none. Of two
// that were seen at the same time, which for the kubelet's is the same second, it is
// the one that was written last, and of two that can't be compared so, the later one of
// the list. Reason and message are cut to what Fit lets pass.
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

// before reports whether a is older than b.
func before(a, b *corev1.Event) bool {
	if at, other := seen(a), seen(b); !at.Equal(other) {
		return at.Before(other)
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// seen is when what an event tells of happened last. Who writes events.k8s.io/v1 (the
// scheduler) counts repetitions in a series and leaves LastTimestamp empty; EventTime
// is the first of them.
func seen(e *corev1.Event) time.Time {
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

// maxNote is how many bytes the API server takes of an event's note (events.k8s.io/v1).
// Those written by the older API are not bounded by it.
const maxNote = 1024

// cut stands for what is left out.
const cut = " …"

// Fit keeps of a note the beginning, which says what failed, as far as the API server
// takes it.
func Fit(note string) string {
	if len(note) <= maxNote {
		return note
	}
	return strings.ToValidUTF8(note[:maxNote-len(cut)], "") + cut
}
