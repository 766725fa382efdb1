package guest

import (
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
)

// maxEventAge is how old an event may be when it is read. An older one was not made when it says:
// the machine's clock was set meanwhile, or the guest has taken QEMU over.
const maxEventAge = 10 * time.Second

// stoppedAfter is since when the guest is stopped after an event; zero if it is not. Before the event
// it was so since stopped.
func stoppedAfter(stopped time.Time, e qmp.Event, now time.Time) time.Time {
	switch e.Name {
	case "STOP":
		return momentOf(e, now)
	case "RESUME":
		return time.Time{}
	}
	return stopped
}

// momentOf is when QEMU saw an event, on the clock of now, which does not jump. QEMU's own time is
// used for the event's age alone: what is measured from it is to count the time until the
// event was read, too.
func momentOf(e qmp.Event, now time.Time) time.Time {
	age := now.Sub(e.Time)
	if e.Time.IsZero() || age < 0 || age > maxEventAge {
		return now
	}
	return now.Add(-age)
}
