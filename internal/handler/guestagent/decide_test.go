package guestagent

import (
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		seen observation
		want decision
	}{
		"there was never an agent":         {observation{}, decision{}},
		"an agent appears":                 {observation{open: true}, decision{ask: true}},
		"an agent is being asked":          {observation{open: true, asking: true, asked: ago(time.Second)}, decision{}},
		"an agent returns at once":         {observation{open: true, answered: true, asked: ago(time.Second), absentSince: ago(time.Second)}, decision{ask: true, pause: 9 * time.Second}},
		"an agent returns after a while":   {observation{open: true, answered: true, asked: ago(time.Hour)}, decision{ask: true}},
		"an agent vanishes unheard":        {observation{asking: true, asked: ago(time.Second)}, decision{stop: true}},
		"an agent vanishes":                {observation{asking: true, answered: true, asked: ago(time.Second)}, decision{stop: true, absentSince: now, after: patience}},
		"an agent has been gone for a bit": {observation{answered: true, absentSince: ago(4 * time.Second)}, decision{absentSince: ago(4 * time.Second), after: 6 * time.Second}},
		"an agent has been gone for long":  {observation{answered: true, absentSince: ago(patience)}, decision{forget: true}},
		"an agent that an earlier virt-handler knew is not there": {
			observation{answered: true}, decision{absentSince: now, after: patience},
		},
	} {
		c.seen.now = now
		if got := decide(c.seen); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestAnAnswerIsCompleteWithAnAddressForEachInterface(t *testing.T) {
	answer := &vmihandler.Agent{Interfaces: []v1.VirtualMachineInstanceNetworkInterface{{IPs: []string{"10.0.0.2"}}, {}}}
	for interfaces, want := range map[int]bool{0: true, 1: true, 2: false} {
		if got := complete(answer, interfaces); got != want {
			t.Errorf("for %d interfaces: %v", interfaces, got)
		}
	}
}
