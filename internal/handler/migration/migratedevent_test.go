package migration

import (
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

func TestWhatAMigrationHasCost(t *testing.T) {
	now := time.Now()
	begins, stops := now, now.Add(2*time.Second)
	for name, c := range map[string]struct {
		begun   bool
		heard   []time.Duration
		stopped time.Time
		want    Cost
	}{
		"all of it was seen":                     {true, []time.Duration{2045 * time.Millisecond}, stops, Cost{2045 * time.Millisecond, 45 * time.Millisecond, 7}},
		"Ran is repeated on a second connection": {true, []time.Duration{2100 * time.Millisecond, time.Minute}, stops, Cost{2100 * time.Millisecond, 100 * time.Millisecond, 7}},
		"another virt-handler has begun it":      {false, []time.Duration{3 * time.Second}, stops, Cost{0, time.Second, 7}},
		"another virt-handler has seen its stop": {true, []time.Duration{3 * time.Second}, time.Time{}, Cost{3 * time.Second, 0, 7}},
		"the VMI has said so before the target":  {true, nil, stops, Cost{time.Hour, time.Hour - 2*time.Second, 7}},
	} {
		s := &Source{env: Env{Now: func() time.Time { return now }}}
		s.received = received{wake: func() {}, now: s.env.Now}
		now = begins
		if c.begun {
			s.RecordBegin()
		}
		for _, after := range c.heard {
			now = begins.Add(after)
			s.received.add(migrationwire.Kind(switchover.Ran))
		}
		now = begins.Add(time.Hour)
		if got := s.Cost(c.stopped, 7); got != c.want {
			t.Errorf("%s: it has cost %+v, want %+v", name, got, c.want)
		}
	}
}

func TestWhatAUserIsToldOfAMigration(t *testing.T) {
	const moved = "The guest has migrated from node a to node b"
	for want, c := range map[string]Cost{
		moved: {},
		moved + " in 2.1 s; it stood still for at most 45 ms; QEMU sent 120 MiB": {2100 * time.Millisecond, 44*time.Millisecond + 1, 120 << 20},
		moved + "; it stood still for at most 9999 ms":                           {Downtime: 9999 * time.Millisecond},
		moved + "; it stood still for at most 11 s":                              {Downtime: 10*time.Second + 1},
		moved + " in 61.0 s; QEMU sent 2 MiB":                                    {Total: 61 * time.Second, Sent: 1<<20 + 1},
	} {
		if got := c.Message("a", "b"); got != want {
			t.Errorf("%+v is told as %q, want %q", c, got, want)
		}
	}
}
