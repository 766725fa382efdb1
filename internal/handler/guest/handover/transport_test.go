package handover_test

import (
	"encoding/json"
	"errors"
	"testing"

	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/handler/guest/handover"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

func TestAGuestMovesBySeveralConnections(t *testing.T) {
	m := guesttest.NewMoving(t)
	m.Transport = switchover.Transport{Channels: 3}
	m.Begin(t)
	m.HandOver(t)
	for name, qemu := range map[string]interface {
		Capability(string) bool
		Parameter(string) string
	}{"source": m.Source, "target": m.Target} {
		if !qemu.Capability("multifd") || qemu.Parameter("multifd-channels") != "3" {
			t.Errorf("the %s has multifd %v, with %s channels", name, qemu.Capability("multifd"), qemu.Parameter("multifd-channels"))
		}
	}
}

// TestATransportIsOneMigrations: after a migration with several connections, the next may have one.
func TestATransportIsOneMigrations(t *testing.T) {
	m := guesttest.NewMoving(t)
	m.Transport = switchover.Transport{Channels: 3}
	m.Begin(t)
	if err := m.From.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.From.Await("the end", guesttest.At("cancelled")) //nolint:misspell // QEMU's word
	m.Transport = switchover.Transport{}
	if err := m.From.Begin(t.Context(), handover.Begin{Migration: "next", Socket: m.Socket}); err != nil || m.Source.Capability("multifd") {
		t.Errorf("the next migration has multifd %v: %v", m.Source.Capability("multifd"), err)
	}
}

// TestATargetThatWaitsIsLeftAsItIs: the next virt-handler may want another transport, and learns the one that QEMU has.
func TestATargetThatWaitsIsLeftAsItIs(t *testing.T) {
	for _, has := range []switchover.Transport{{}, {Channels: 2}, {Channels: 16}} {
		m := guesttest.NewMoving(t)
		for _, wanted := range []switchover.Transport{has, {Channels: 4}, {}} {
			taken, err := m.To.Listen(t.Context(), m.Socket, wanted)
			if err != nil || taken != has {
				t.Errorf("a QEMU that waits by %+v, and is to by %+v, says %+v: %v", has, wanted, taken, err)
			}
		}
		if n := m.Target.Executed("migrate-set-capabilities"); n != 1 || m.Target.Capability("multifd") != (has.Channels > 0) {
			t.Errorf("its capabilities were set %d times", n)
		}
	}
}

// TestATargetThatWasSetAndDoesNotWait: a virt-handler has ended between the two.
func TestATargetThatWasSetAndDoesNotWait(t *testing.T) {
	m := guesttest.NewMoving(t)
	m.Target.Override("migrate-incoming", func(json.RawMessage) (any, error) { return nil, errors.New("no room") })
	if taken, err := m.To.Listen(t.Context(), m.Socket, switchover.Transport{Channels: 3}); err == nil {
		t.Fatalf("QEMU takes its guest by %+v", taken)
	}
	m.Target.Override("migrate-incoming", nil)
	taken, err := m.To.Listen(t.Context(), m.Socket, switchover.Transport{})
	if err != nil || taken.Channels != 3 || m.Target.Executed("migrate-incoming") != 2 {
		t.Errorf("then it takes it by %+v: %v", taken, err)
	}
}

// TestQEMUsNumberOfChannelsIsBounded: a guest that has taken QEMU over may report any number.
func TestQEMUsNumberOfChannelsIsBounded(t *testing.T) {
	for says, want := range map[int]int{-1: 0, 16: 16, 17: 16, 1 << 30: 16} {
		m := guesttest.NewMoving(t)
		m.Transport = switchover.Transport{Channels: 2}
		if _, err := m.To.Listen(t.Context(), m.Socket, m.Transport); err != nil {
			t.Fatal(err)
		}
		m.Target.Override("query-migrate-parameters", func(json.RawMessage) (any, error) { return map[string]any{"multifd-channels": says}, nil })
		if taken, err := m.To.Listen(t.Context(), m.Socket, m.Transport); err != nil || taken.Channels != want {
			t.Errorf("of %d channels, %d are taken: %v", says, taken.Channels, err)
		}
	}
}
