package migration

import (
	"fmt"
	"time"

	"drydock.dev/drydock/internal/rules/switchover"
)

// Cost is what a migration has cost, as the source knows it. A part that is 0 is not known: its
// beginning was seen by a virt-handler that has ended since.
type Cost struct {
	// Total is the time from the migration's beginning until the source heard that the guest
	// runs at the target.
	Total time.Duration
	// Downtime is how long the guest stood still, at most: from the moment at which QEMU stopped it
	// until then. Both moments are of the source's clock (decision 305).
	Downtime time.Duration
	// Sent is what QEMU has sent, in bytes.
	Sent int64
}

// Cost returns what the migration has cost whose guest runs at the target. stopped is when QEMU
// stopped the guest here, zero if that was not seen; sent is what QEMU has sent. Where the VMI said sooner
// than the target that the guest runs, it has run before now.
func (s *Source) Cost(stopped time.Time, sent int64) Cost {
	ran := s.heard.at(switchover.Ran)
	if ran.IsZero() {
		ran = s.env.Now()
	}
	return Cost{Total: between(s.began, ran), Downtime: between(stopped, ran), Sent: sent}
}

// between is the time between two moments, 0 if one of them is not known.
func between(from, to time.Time) time.Duration {
	if from.IsZero() || to.IsZero() {
		return 0
	}
	return max(0, to.Sub(from))
}

// Message is the sentence for the VMI's owner.
func (c Cost) Message(source, target string) string {
	said := fmt.Sprintf("The guest has migrated from node %s to node %s", source, target)
	if c.Total > 0 {
		said += fmt.Sprintf(" in %.1f s", c.Total.Seconds())
	}
	if c.Downtime > 0 {
		said += fmt.Sprintf("; it stood still for at most %s", still(c.Downtime))
	}
	if c.Sent > 0 {
		said += fmt.Sprintf("; QEMU sent %d MiB", (c.Sent+1<<20-1)>>20)
	}
	return said
}

// still is a downtime in the unit that is read best, rounded up.
func still(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%d ms", (d+time.Millisecond-1)/time.Millisecond)
	}
	return fmt.Sprintf("%d s", (d+time.Second-1)/time.Second)
}
