package guest

import (
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
)

// An older timestamp is wrong: the clock was set, or the guest has taken QEMU over.
const maxEventAge = 10 * time.Second

// stoppedAfter returns when the guest stopped, zero if it runs. The result is by the clock of now, which does not jump:
// QEMU's timestamp only gives the event's age.
func stoppedAfter(stopped time.Time, e qmp.Event, now time.Time) time.Time {
	switch e.Name {
	case "STOP":
		age := now.Sub(e.Time)
		if e.Time.IsZero() || age < 0 || age > maxEventAge {
			return now
		}
		return now.Add(-age)
	case "RESUME":
		return time.Time{}
	}
	return stopped
}
