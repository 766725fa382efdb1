package migration

import (
	"fmt"
	"time"

	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// Cost is the cost of a migration. A field is 0 if unknown: only an earlier virt-handler saw the beginning.
type Cost struct {
	Total time.Duration
	// Downtime is an upper bound: from QEMU's stop to the target's message, by the source's clock (decision 305).
	Downtime time.Duration
	Sent     int64 // bytes
}

// Cost returns the cost of a migration whose guest runs at the target, up to the target's message or, before it has
// come, up to now. stopped is zero if unknown.
func (s *Source) Cost(stopped time.Time, sent int64) Cost {
	ran := s.received.at(switchover.Ran)
	if ran.IsZero() {
		ran = s.env.Now()
	}
	return Cost{Total: between(s.began, ran), Downtime: between(stopped, ran), Sent: sent}
}

func between(from, to time.Time) time.Duration {
	if from.IsZero() || to.IsZero() {
		return 0
	}
	return max(0, to.Sub(from))
}

// Message is for the VMI's owner.
func (c Cost) Message(source, target string) string {
	said := fmt.Sprintf("The guest has migrated from node %s to node %s", source, target)
	if c.Total > 0 {
		said += fmt.Sprintf(" in %.1f s", c.Total.Seconds())
	}
	if c.Downtime > 0 {
		said += fmt.Sprintf("; it stood still for at most %s", formatDowntime(c.Downtime))
	}
	if c.Sent > 0 {
		said += fmt.Sprintf("; QEMU sent %d MiB", (c.Sent+1<<20-1)>>20)
	}
	return said
}

func formatDowntime(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%d ms", (d+time.Millisecond-1)/time.Millisecond)
	}
	return fmt.Sprintf("%d s", (d+time.Second-1)/time.Second)
}
