package guest

import (
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
)

func TestSinceWhenAGuestIsStopped(t *testing.T) {
	now := time.Now()
	before := now.Add(-time.Hour)
	for name, c := range map[string]struct {
		event qmp.Event
		want  time.Time
	}{
		"QEMU stops it":                         {qmp.Event{Name: "STOP", Time: now.Add(-30 * time.Millisecond).Round(0)}, now.Add(-30 * time.Millisecond)},
		"QEMU stops it and does not know when":  {qmp.Event{Name: "STOP"}, now},
		"QEMU's time is to come":                {qmp.Event{Name: "STOP", Time: now.Add(time.Millisecond).Round(0)}, now},
		"the oldest event that is believed":     {qmp.Event{Name: "STOP", Time: now.Add(-10 * time.Second).Round(0)}, now.Add(-10 * time.Second)},
		"an event from before the clock's jump": {qmp.Event{Name: "STOP", Time: now.Add(-10*time.Second - 1).Round(0)}, now},
		"QEMU runs it":                          {qmp.Event{Name: "RESUME", Time: now}, time.Time{}},
		"something else happens":                {qmp.Event{Name: "MIGRATION", Time: now}, before},
	} {
		if got := stoppedAfter(before, c.event, now); !got.Equal(c.want) {
			t.Errorf("%s: it is stopped since %v, want %v", name, got, c.want)
		}
	}
}
