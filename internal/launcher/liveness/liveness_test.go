package liveness_test

import (
	"testing"

	"drydock.dev/drydock/internal/launcher/liveness"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/runstate"
)

func TestWhenAProbeCounts(t *testing.T) {
	for name, c := range map[string]struct {
		facts  liveness.Facts
		excuse string
		began  bool
	}{
		"before QEMU has started":     {liveness.Facts{}, "its QEMU has not started", false},
		"a guest that runs":           {liveness.Facts{Started: true, RunState: "running"}, "", true},
		"QEMU does not answer":        {liveness.Facts{Started: true}, "", false},
		"it waits for its disks":      {liveness.Facts{Started: true, RunState: "prelaunch"}, `it is stopped (QEMU's state "prelaunch")`, false},
		"it has not arrived":          {liveness.Facts{Started: true, Arriving: true, RunState: "inmigrate"}, "it has not arrived", false},
		"it may not run yet":          {liveness.Facts{Started: true, Arriving: true, RunState: "paused"}, "it has not arrived", false},
		"it waits for its memory":     {liveness.Facts{Started: true, Migration: migrationstatus.PostCopyPaused, RunState: "running"}, "it is being migrated", true},
		"it is sent while it runs":    {liveness.Facts{Started: true, Migration: migrationstatus.Active, RunState: "running"}, "it is being migrated", true},
		"its memory follows it":       {liveness.Facts{Started: true, Migration: migrationstatus.PostCopyActive, RunState: "finish-migrate"}, "it is being migrated", true},
		"it is sent by a silent QEMU": {liveness.Facts{Started: true, Ran: true, Migration: migrationstatus.Device}, "it is being migrated", true},
		"it ran, and QEMU is silent":  {liveness.Facts{Started: true, Ran: true}, "", true},
		"it has left":                 {liveness.Facts{Started: true, Left: true, Migration: migrationstatus.Completed}, "it was sent to another node", true},
		"its migration has failed":    {liveness.Facts{Started: true, Migration: migrationstatus.Failed, RunState: "running"}, "", true},
		"it is frozen":                {liveness.Facts{Started: true, Held: true, RunState: "running"}, "it is held still for a snapshot", true},
		"it is being ended":           {liveness.Facts{Started: true, Stopping: true, RunState: "running"}, "it is being ended", true},
		"stopped for its migration":   {liveness.Facts{Started: true, RunState: "paused"}, `it is stopped (QEMU's state "paused")`, true},
	} {
		if got := liveness.Excuse(c.facts); got != c.excuse {
			t.Errorf("%s: %q, want %q", name, got, c.excuse)
		}
		if got := liveness.Began(c.facts); got != c.began {
			t.Errorf("%s: it began: %v", name, got)
		}
	}
}

func TestTheRunStatesInWhichAProbeCounts(t *testing.T) {
	counts := map[string]bool{"running": true, "internal-error": true, "guest-panicked": true, "shutdown": true, "newer": true}
	for _, s := range append(runstate.All(), runstate.Of("newer")) {
		excuse := liveness.Excuse(liveness.Facts{Started: true, RunState: s.Name})
		if (excuse == "") != counts[s.Name] {
			t.Errorf("%s: %q", s.Name, excuse)
		}
	}
}
