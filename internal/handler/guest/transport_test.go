package guest

import (
	"encoding/json"
	"errors"
	"testing"

	"drydock.dev/drydock/internal/rules/migration/switchover"
)

func TestAGuestMovesBySeveralConnections(t *testing.T) {
	m := newMoving(t)
	m.transport = switchover.Transport{Channels: 3}
	m.begin(t)
	m.handOver(t)
	for name, qemu := range map[string]interface {
		Capability(string) bool
		Parameter(string) string
	}{"source": m.source, "target": m.target} {
		if !qemu.Capability("multifd") || qemu.Parameter("multifd-channels") != "3" {
			t.Errorf("the %s has multifd %v, with %s channels", name, qemu.Capability("multifd"), qemu.Parameter("multifd-channels"))
		}
	}
}

// TestATransportIsOneMigrations: after a migration with several connections, the next may have one.
func TestATransportIsOneMigrations(t *testing.T) {
	m := newMoving(t)
	m.transport = switchover.Transport{Channels: 3}
	m.begin(t)
	if err := m.from.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.from.await("the end", at("cancelled")) //nolint:misspell // QEMU's word
	m.transport = switchover.Transport{}
	if err := m.from.Begin(t.Context(), Begin{Migration: "next", Socket: m.socket}); err != nil || m.source.Capability("multifd") {
		t.Errorf("the next migration has multifd %v: %v", m.source.Capability("multifd"), err)
	}
}

// TestATargetThatWaitsIsLeftAsItIs: the next virt-handler may want another transport, and learns the one that QEMU has.
func TestATargetThatWaitsIsLeftAsItIs(t *testing.T) {
	for _, has := range []switchover.Transport{{}, {Channels: 2}, {Channels: 16}} {
		m := newMoving(t)
		for _, wanted := range []switchover.Transport{has, {Channels: 4}, {}} {
			taken, err := m.to.Listen(t.Context(), m.socket, wanted)
			if err != nil || taken != has {
				t.Errorf("a QEMU that waits by %+v, and is to by %+v, says %+v: %v", has, wanted, taken, err)
			}
		}
		if n := m.target.Executed("migrate-set-capabilities"); n != 1 || m.target.Capability("multifd") != (has.Channels > 0) {
			t.Errorf("its capabilities were set %d times", n)
		}
	}
}

// TestATargetThatWasSetAndDoesNotWait: a virt-handler has ended between the two.
func TestATargetThatWasSetAndDoesNotWait(t *testing.T) {
	m := newMoving(t)
	m.target.Override("migrate-incoming", func(json.RawMessage) (any, error) { return nil, errors.New("no room") })
	if taken, err := m.to.Listen(t.Context(), m.socket, switchover.Transport{Channels: 3}); err == nil {
		t.Fatalf("QEMU takes its guest by %+v", taken)
	}
	m.target.Override("migrate-incoming", nil)
	taken, err := m.to.Listen(t.Context(), m.socket, switchover.Transport{})
	if err != nil || taken.Channels != 3 || m.target.Executed("migrate-incoming") != 2 {
		t.Errorf("then it takes it by %+v: %v", taken, err)
	}
}

// TestQEMUsNumberOfChannelsIsBounded: a guest that has taken QEMU over may report any number.
func TestQEMUsNumberOfChannelsIsBounded(t *testing.T) {
	for says, want := range map[int]int{-1: 0, 16: 16, 17: 16, 1 << 30: 16} {
		m := newMoving(t)
		m.transport = switchover.Transport{Channels: 2}
		if _, err := m.to.Listen(t.Context(), m.socket, m.transport); err != nil {
			t.Fatal(err)
		}
		m.target.Override("query-migrate-parameters", func(json.RawMessage) (any, error) { return map[string]any{"multifd-channels": says}, nil })
		if taken, err := m.to.Listen(t.Context(), m.socket, m.transport); err != nil || taken.Channels != want {
			t.Errorf("of %d channels, %d are taken: %v", says, taken.Channels, err)
		}
	}
}
