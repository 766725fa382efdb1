package qmptest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
)

type pair struct {
	from, to *conn
	uri      properties
	relays   int // made so far
}

func migrations(t *testing.T, open opener) {
	for name, part := range map[string]func(*pair){
		"a guest is handed over, and runs when it is told to":                       handover,
		"a migration that is given up leaves the guest running and ends the target": canceled,
		"a guest runs on when its target ends before the switchover":                targetEnds,
		"a target ends with its source":                                             sourceEnds,
		"a source runs on when its guest has not run at the target":                 reclaimed,
		"a paused guest arrives paused, and is not stopped again":                   pausedGuest,
		"a paused guest whose migration is given up stays stopped":                  pausedCancelled,
		"a migration that can't be reached fails and the guest runs on":             unreachable,
		"migrations begin, go on and arrive only where they can":                    misplaced,
		"markers stay in the QEMU that they were added to":                          markersStay,
		"memory that a guest was given comes with it":                               memoryMoves,
		"a guest is handed over by several connections":                             multifd,
		"a guest runs on whose target knows of one connection":                      multifdRefused,
		"a guest runs at its target before its memory is there":                     postCopied,
		"a guest that was to move before its memory stays stopped":                  postCopyGivenUp,
		"a guest that has moved before its memory comes back if that is rejected":   postCopyRejected,
		"a guest that was stopped stays so if its post-copy ends badly":             postCopyEndsBadly,
		"a guest whose post-copy has broken is not taken back":                      postCopyLost,
		"a post-copy goes on at a target that answers nothing":                      postCopyOfStuckTarget,
		"a disk that is copied is the same when its guest is handed over":           mirrored,
		"a copy that is ended by force is one that has failed":                      mirrorEnded,
		"a copy fails with its target, and the guest goes on":                       mirrorLost,
	} {
		t.Run(name, func(t *testing.T) {
			part(newPair(t, open))
		})
	}
}

func newPair(t *testing.T, open opener) *pair {
	t.Helper()
	connect := func(more ...string) *conn {
		c := &conn{t: t, events: make(chan qmp.Event, 100)}
		c.Client, c.outOfBand = open(t, func(e qmp.Event) { KeepLatest(c.events, e) }, more...)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	dir, err := os.MkdirTemp("", "migration") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &pair{from: connect(), to: connect("-incoming", "defer"), uri: properties{"uri": "unix:" + filepath.Join(dir, "m.sock")}}
}

func switches(names ...string) properties {
	var list []properties
	for _, name := range names {
		list = append(list, properties{"capability": name, "state": true})
	}
	return properties{"capabilities": list}
}

func (c *conn) status() string {
	c.t.Helper()
	var info struct{ Status string }
	c.do("query-migrate", nil, &info)
	return info.Status
}

func (c *conn) migrated(want string) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		got := c.status()
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the migration is %s, want %s", got, want)
		}
	}
}

// givenBack are the states of a stopped guest whose migration has failed: QEMU 7.2's and QEMU 10's.
var givenBack = []string{"postmigrate", "paused"}

func (c *conn) reaches(wanted ...string) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		var is struct{ Status string }
		c.do("query-status", nil, &is)
		if slices.Contains(wanted, is.Status) {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the guest is %s, want %q", is.Status, wanted)
		}
	}
}

func (c *conn) arrived(status string) {
	c.t.Helper()
	for want := `{"status": "` + status + `"}`; ; {
		e := c.await("MIGRATION")
		if got := string(e.Data); got == want || got == `{"status":"`+status+`"}` {
			return
		}
	}
}

func (c *conn) ends() {
	c.t.Helper()
	select {
	case <-c.Done():
	case <-time.After(patience):
		c.t.Fatal("QEMU does not end")
	}
}

// toSwitchover takes a migration to pre-switchover, where the source waits.
func (p *pair) toSwitchover(run bool) {
	p.to.t.Helper()
	p.to.is("inmigrate")
	p.to.do("migrate-set-capabilities", switches("events", "return-path", "late-block-activate"), nil)
	p.to.do("migrate-incoming", p.uri, nil)
	p.to.arrived("setup")
	p.to.is("inmigrate")
	if run {
		p.from.do("cont", nil, nil)
		p.from.await("RESUME")
	}
	p.from.do("migrate-set-capabilities", switches("events", "return-path", "pause-before-switchover", "auto-converge"), nil)
	p.from.do("migrate-set-parameters", properties{"max-bandwidth": 1 << 30, "downtime-limit": 100}, nil)
	p.from.do("migrate", p.uri, nil)
	p.from.migrated("pre-switchover")
	p.from.arrived("pre-switchover")
	p.from.is("finish-migrate")
	p.to.migrated("active")
	p.to.is("inmigrate")
}

var proceed = properties{"state": "pre-switchover"}

func (p *pair) toEnd() {
	p.to.t.Helper()
	p.from.do("migrate-continue", proceed, nil)
	p.from.arrived("completed")
	p.from.reaches("postmigrate")
	p.to.arrived("completed")
}

func handover(p *pair) {
	p.toSwitchover(true)
	p.toEnd()
	p.from.silent("RESUME")
	p.to.reaches("paused")
	p.to.silent("RESUME")
	var info struct {
		Status   string
		Downtime *int64
		RAM      *struct{ Total, Transferred int64 }
	}
	p.from.do("query-migrate", nil, &info)
	if info.Status != "completed" || info.Downtime == nil || info.RAM == nil || info.RAM.Total == 0 || info.RAM.Transferred == 0 {
		p.from.t.Errorf("the source says %+v", info)
	}
	p.to.do("cont", nil, nil)
	p.to.await("RESUME")
	p.to.is("running")
	p.to.do("announce-self", properties{"initial": 50, "max": 550, "rounds": 5, "step": 100}, nil)
	p.from.do("migrate_cancel", nil, nil) // too late
	p.from.is("postmigrate")
	if got := p.from.status(); got != "completed" {
		p.from.t.Errorf("after a cancellation that came too late, the migration is %s", got)
	}
	_ = p.from.Execute(p.from.t.Context(), "quit", nil, nil)
	p.from.ends()
	p.to.is("running")
}

func canceled(p *pair) {
	p.toSwitchover(true)
	p.from.do("migrate_cancel", nil, nil)
	p.from.migrated(migrationCanceled)
	p.from.reaches("running")
	p.from.await("RESUME")
	p.to.ends()
}

func targetEnds(p *pair) {
	p.toSwitchover(true)
	_ = p.to.Execute(p.to.t.Context(), "quit", nil, nil)
	p.to.ends()
	p.from.is("finish-migrate")
	p.from.do("migrate-continue", proceed, nil)
	p.from.migrated("failed")
	p.from.reaches("running")
	p.from.await("RESUME")
	// A migration can begin again; this one has no target.
	p.from.do("migrate", p.uri, nil)
	p.from.migrated("failed")
	p.from.reaches("running")
}

func sourceEnds(p *pair) {
	p.toSwitchover(true)
	_ = p.from.Execute(p.from.t.Context(), "quit", nil, nil)
	p.from.ends()
	p.to.ends()
}

func reclaimed(p *pair) {
	p.toSwitchover(true)
	p.toEnd()
	_ = p.to.Execute(p.to.t.Context(), "quit", nil, nil)
	p.to.ends()
	p.from.is("postmigrate")
	p.from.do("cont", nil, nil)
	p.from.await("RESUME")
	p.from.is("running")
	if got := p.from.status(); got != "completed" {
		p.from.t.Errorf("the migration is %s", got)
	}
}

func pausedGuest(p *pair) {
	p.from.do("cont", nil, nil)
	p.from.do("stop", nil, nil)
	p.from.await("STOP")
	p.toSwitchover(false)
	p.toEnd()
	p.from.silent("STOP", "RESUME")
	p.to.reaches("paused")
	p.to.silent("STOP", "RESUME")
}

// QEMU 7.2 leaves it in postmigrate, QEMU 10 in paused.
func pausedCancelled(p *pair) {
	p.from.do("cont", nil, nil)
	p.from.do("stop", nil, nil)
	p.toSwitchover(false)
	p.from.do("migrate_cancel", nil, nil)
	p.from.migrated(migrationCanceled)
	p.from.reaches(givenBack...)
	p.to.ends()
	p.from.silent("RESUME")
	p.from.do("cont", nil, nil)
	p.from.is("running")
}

func unreachable(p *pair) {
	p.from.do("cont", nil, nil)
	p.from.do("migrate-set-capabilities", switches("events"), nil)
	// QEMU reports it at once, or when the connection has failed.
	if err := p.from.Execute(p.from.t.Context(), "migrate", p.uri, nil); err == nil {
		p.from.migrated("failed")
	}
	p.from.is("running")
}

func misplaced(p *pair) {
	p.from.refused("migrate-incoming", p.uri, "GenericError", "-incoming")
	p.to.refused("migrate", p.uri, "GenericError", "incoming migration")
	p.from.refused("migrate-continue", proceed, "GenericError", "not in expected state")
	p.from.do("migrate_cancel", nil, nil) // there is none
	p.from.is("prelaunch")
	var info struct{ Status *string }
	p.from.do("query-migrate", nil, &info)
	if info.Status != nil {
		p.from.t.Errorf("a machine that never migrated says %s", *info.Status)
	}
	p.to.do("migrate-incoming", p.uri, nil)
	p.to.do("query-migrate", nil, &info)
	if info.Status != nil && *info.Status != "setup" { // which QEMU 10 says
		p.to.t.Errorf("a machine that waits for its guest says %s", *info.Status)
	}
	p.to.do("migrate-set-capabilities", switches("events"), nil)
	p.to.refused("migrate-incoming", p.uri, "GenericError", "already been started")
}

func markersStay(p *pair) {
	p.to.do("object-add", properties{"qom-type": "rng-builtin", "id": "there"}, nil)
	p.from.do("object-add", properties{"qom-type": "rng-builtin", "id": "here"}, nil)
	p.toSwitchover(true)
	p.from.do("object-add", properties{"qom-type": "rng-builtin", "id": "stopped"}, nil)
	p.toEnd()
	p.to.reaches("paused")
	p.to.do("object-add", properties{"qom-type": "rng-builtin", "id": "loaded"}, nil)
	for name, c := range map[string]*conn{"here": p.from, "stopped": p.from, "there": p.to, "loaded": p.to} {
		found := false
		for _, o := range c.names("/objects") {
			found = found || o == name
		}
		if !found {
			p.from.t.Errorf("the object %s is not there any more", name)
		}
	}
}
