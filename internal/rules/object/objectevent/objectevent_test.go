package objectevent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// event is a warning whose message is its own name.
func event(says, version string, edits ...func(*corev1.Event)) corev1.Event {
	e := corev1.Event{Type: corev1.EventTypeWarning, Reason: "Failed", Message: says}
	e.ResourceVersion = version
	for _, edit := range edits {
		edit(&e)
	}
	return e
}

// The fields with an event's time, in seconds from noon.
func last(s float64) func(*corev1.Event) {
	return func(e *corev1.Event) { e.LastTimestamp = metav1.NewTime(at(s)) }
}

func first(s float64) func(*corev1.Event) {
	return func(e *corev1.Event) { e.EventTime = metav1.NewMicroTime(at(s)) }
}

func again(s float64) func(*corev1.Event) {
	return func(e *corev1.Event) { e.Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(at(s))} }
}

func created(s float64) func(*corev1.Event) {
	return func(e *corev1.Event) { e.CreationTimestamp = metav1.NewTime(at(s)) }
}

func normal(e *corev1.Event) { e.Type = corev1.EventTypeNormal }

func at(s float64) time.Time { return noon.Add(time.Duration(s * float64(time.Second))) }

func TestNewestWarning(t *testing.T) {
	for name, c := range map[string]struct {
		events []corev1.Event
		want   string
	}{
		"nobody has warned":                          {nil, ""},
		"what is normal is no warning":               {[]corev1.Event{event("mount", "1", last(1)), event("pulled", "2", last(2), normal)}, "mount"},
		"nothing but normal":                         {[]corev1.Event{event("pulled", "2", last(2), normal)}, ""},
		"one":                                        {[]corev1.Event{event("mount", "1", last(1))}, "mount"},
		"the one that was seen last":                 {[]corev1.Event{event("mount", "9", last(1)), event("attach", "2", last(2))}, "attach"},
		"an older one that came again":               {[]corev1.Event{event("mount", "5", created(0), last(9)), event("attach", "2", created(2), last(2))}, "mount"},
		"by the newer API":                           {[]corev1.Event{event("schedule", "3", first(3)), event("attach", "2", last(2))}, "schedule"},
		"a series counts from when it was seen last": {[]corev1.Event{event("schedule", "9", first(1), again(8)), event("attach", "2", last(2))}, "schedule"},
		"a series that ended before":                 {[]corev1.Event{event("schedule", "3", first(1), again(2)), event("attach", "4", last(5))}, "attach"},
		"the newer API has parts of a second":        {[]corev1.Event{event("schedule", "3", first(2.5)), event("attach", "4", last(2))}, "schedule"},
		"in one second, what was written last":       {[]corev1.Event{event("attach", "12", last(2)), event("mount", "9", last(2))}, "attach"},
		"a version is a number, not a word":          {[]corev1.Event{event("attach", "9", last(2)), event("mount", "12", last(2))}, "mount"},
		"versions that can't be compared":            {[]corev1.Event{event("attach", "x", last(2)), event("mount", "", last(2))}, "mount"},
		"no time but that of its making":             {[]corev1.Event{event("attach", "1", created(3)), event("mount", "2", last(2))}, "attach"},
		"no time at all is older than any":           {[]corev1.Event{event("attach", "7"), event("mount", "2", last(2))}, "mount"},
	} {
		t.Run(name, func(t *testing.T) {
			got := NewestWarning(c.events)
			if c.want == "" {
				if got != nil {
					t.Errorf("%+v, want none", got)
				}
				return
			}
			if diff := cmp.Diff(&Warning{Reason: "Failed", Message: c.want}, got); diff != "" {
				t.Error(diff)
			}
			if c.events[0].ResourceVersion == "x" {
				return
			}
			slices.Reverse(c.events)
			if diff := cmp.Diff(got, NewestWarning(c.events)); diff != "" {
				t.Errorf("the order of the list decides: %s", diff)
			}
		})
	}
}

func TestALongMessageIsCut(t *testing.T) {
	long := event(strings.Repeat("ä", 1<<20), "1", last(1))
	long.Reason = long.Message
	got := NewestWarning([]corev1.Event{long})
	if got == nil || len(got.Message) > maxNote || !strings.HasSuffix(got.Message, cut) {
		t.Errorf("a warning of a megabyte is passed on with %d bytes", len(got.Message))
	}
	if len(got.Reason) > maxNote {
		t.Errorf("its reason is passed on with %d bytes", len(got.Reason))
	}
}

func TestWarningsAbout(t *testing.T) {
	want := map[string]string{"involvedObject.uid": "u-1", "type": "Warning"}
	if diff := cmp.Diff(want, WarningsAbout("u-1")); diff != "" {
		t.Error(diff)
	}
}

func TestWhatTheAPIServerTakesIsNotCut(t *testing.T) {
	for name, c := range map[string]struct{ note, want string }{
		"a note of 1024 bytes": {strings.Repeat("x", 1024), strings.Repeat("x", 1024)},
		"one byte more":        {strings.Repeat("x", 1025), strings.Repeat("x", 1020) + " …"},
	} {
		if got := Fit(c.note); got != c.want {
			t.Errorf("%s: %d bytes are left, want %d", name, len(got), len(c.want))
		}
	}
}

func TestOfWarningsOfOneVersionTheLaterOfTheListCounts(t *testing.T) {
	got := NewestWarning([]corev1.Event{event("attach", "4", last(2)), event("mount", "4", last(2))})
	if got == nil || got.Message != "mount" {
		t.Errorf("%+v, want mount", got)
	}
}
