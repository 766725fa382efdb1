package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

// Memory in bytes that is not zero, so that it takes a while to send.
const (
	slowMemory   = 4 << 20
	slowMemoryAt = 16 << 20
)

// brokenPostCopy is a pair whose guest runs at the target, and whose stream has broken.
func brokenPostCopy(t *testing.T) (p *pair, uri string) {
	t.Helper()
	p = &pair{source: newLauncher(t), target: newLauncher(t)}
	memory := filepath.Join(p.source.dir, "memory")
	if err := os.WriteFile(memory, bytes.Repeat([]byte{1}, slowMemory), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(r *running, incoming bool, more ...string) *client {
		c, _ := r.connect()
		more = append(more, "-device", fmt.Sprintf("loader,file=%s,addr=%d,force-raw=on", memory, slowMemoryAt))
		reply := c.ask(launch.Request{Start: &launch.Start{Args: r.qemuArgs(more...), Incoming: incoming}})
		if reply.Error != "" || !reply.State.Recovers {
			t.Fatalf("starting QEMU: %+v", reply)
		}
		return c
	}
	p.atSource, p.atTarget = start(p.source, false), start(p.target, true, "-S", "-incoming", "defer")
	p.from, p.to = p.source.monitor(), p.target.monitor()
	capabilities := switches("events", "return-path", "postcopy-ram")
	if err := p.to.Execute(t.Context(), "migrate-set-capabilities", capabilities, nil); err != nil {
		t.Skipf("no post-copy here: %v", err)
	}
	uri = "unix:" + filepath.Join(p.target.dir, layout.MigrationSocket)
	execute(t, p.to, "migrate-incoming", properties{"uri": uri})
	execute(t, p.from, "migrate-set-capabilities", capabilities)
	execute(t, p.from, "migrate-set-parameters", properties{"max-bandwidth": 1 << 18, "max-postcopy-bandwidth": 1 << 17})
	execute(t, p.from, "migrate", properties{"uri": uri})
	awaitMigration(t, p.from, "active")
	execute(t, p.from, "migrate-start-postcopy", nil)
	awaitMigration(t, p.from, "postcopy-active")
	awaitMigration(t, p.to, "postcopy-active")
	execute(t, p.to, "cont", nil)
	execute(t, p.from, "migrate-pause", nil)
	awaitMigration(t, p.from, "postcopy-paused")
	return p, uri
}

// stick makes QEMU's main loop wait for memory that has not come, and waits until QEMU answers nothing.
func (p *pair) stick(t *testing.T) (read <-chan error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		line := fmt.Sprintf("xp/1wx %d", slowMemoryAt+slowMemory-4096)
		done <- p.to.Execute(t.Context(), "human-monitor-command", properties{"command-line": line}, nil)
	}()
	waitFor(t, "a QEMU that answers nothing", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		return errors.Is(p.to.Execute(ctx, "query-status", nil, nil), context.DeadlineExceeded)
	})
	return done
}

func (c *client) arrival() launch.Arrival {
	c.t.Helper()
	m := c.read()
	if m.Event == nil || m.Event.Arrival == nil {
		c.t.Fatalf("expected news of an incoming guest, got %+v", m)
	}
	return *m.Event.Arrival
}

// TestAPostCopyGoesOnAtAQEMUThatAnswersNothing: QEMU waits for memory, and virt-handler's monitor is of no use.
func TestAPostCopyGoesOnAtAQEMUThatAnswersNothing(t *testing.T) {
	p, uri := brokenPostCopy(t)
	broken := launch.Arrival{Broken: true, Ran: true}
	if got := p.atTarget.arrival(); got != broken {
		t.Errorf("virt-handler is told %+v", got)
	}
	read := p.stick(t)
	next, state := p.target.connect()
	if !state.Recovers || state.Arrival != broken {
		t.Errorf("the next virt-handler is told %+v", state)
	}
	for range 2 { // also a QEMU that listens already
		if reply := next.ask(launch.Request{Recover: &launch.Recover{}}); reply.Error != "" {
			t.Fatalf("the answer is %+v", reply)
		}
	}
	execute(t, p.from, "migrate-set-parameters", properties{"max-postcopy-bandwidth": 1 << 40})
	execute(t, p.from, "migrate", properties{"uri": uri, "resume": true})
	if err := <-read; err != nil {
		t.Errorf("the memory has not come: %v", err)
	}
	awaitMigration(t, p.from, "completed")
	awaitMigration(t, p.to, "completed")
	awaitRunState(t, p.to, "running")
	if got := next.arrival(); got != (launch.Arrival{}) {
		t.Errorf("virt-handler is told %+v", got)
	}
	if reply := next.ask(launch.Request{Recover: &launch.Recover{}}); !reply.Refused || !strings.Contains(reply.Error, notBroken) {
		t.Errorf("the answer about a stream that is whole is %+v", reply)
	}
}

func TestNothingIsRecoveredWithoutAnIncomingGuest(t *testing.T) {
	r := newLauncher(t)
	c, state := r.connect()
	if reply := c.ask(launch.Request{Recover: &launch.Recover{}}); reply.Error == "" || reply.Refused || state.Recovers {
		t.Errorf("before QEMU: %+v, %+v", reply, state)
	}
	reply := c.ask(launch.Request{Start: &launch.Start{Args: r.qemuArgs()}})
	if reply.Error != "" {
		t.Fatal(reply.Error)
	}
	if reply := c.ask(launch.Request{Recover: &launch.Recover{}}); reply.Error == "" || reply.Refused {
		t.Errorf("a guest that was started here: %+v", reply)
	}
}

func TestArrival(t *testing.T) {
	broken, ran := launch.Arrival{Broken: true}, launch.Arrival{Broken: true, Ran: true}
	for name, c := range map[string]struct {
		statuses  []string
		resumesAt int // before that status; -1 for never
		want      launch.Arrival
	}{
		"it follows its guest":               {[]string{"active", "postcopy-active"}, 2, launch.Arrival{}},
		"its stream breaks":                  {[]string{"postcopy-active", "postcopy-paused"}, 1, ran},
		"its guest has not run":              {[]string{"postcopy-active", "postcopy-paused"}, -1, broken},
		"its guest runs afterwards":          {[]string{"postcopy-active", "postcopy-paused"}, 2, ran},
		"QEMU 7.2 listens":                   {[]string{"postcopy-active", "postcopy-paused", "setup"}, 1, ran},
		"QEMU 10 listens":                    {[]string{"postcopy-active", "postcopy-paused", "postcopy-recover-setup"}, 1, ran},
		"another stream is taken up":         {[]string{"postcopy-active", "postcopy-paused", "setup", "postcopy-recover"}, 1, launch.Arrival{}},
		"that breaks, too":                   {[]string{"postcopy-active", "postcopy-paused", "setup", "postcopy-recover", "postcopy-paused"}, 1, ran},
		"all has come":                       {[]string{"postcopy-active", "postcopy-paused", "postcopy-active", "completed"}, 1, launch.Arrival{}},
		"it listens for its guest at first":  {[]string{"setup"}, -1, launch.Arrival{}},
		"it runs while QEMU 7.2 listens":     {[]string{"postcopy-active", "postcopy-paused", "setup", "postcopy-recover", "postcopy-active", "completed"}, 3, launch.Arrival{}},
		"its guest is sent on by post-copy,": {[]string{"postcopy-active", "completed", "setup", "active", "postcopy-active", "postcopy-paused"}, 1, launch.Arrival{}},
	} {
		g := guest{incoming: true}
		for i, status := range append(c.statuses, "") {
			if i == c.resumesAt {
				g.recordEvent("RESUME", nil)
			}
			if status != "" {
				g.recordEvent("MIGRATION", fmt.Appendf(nil, `{"status": %q}`, status))
			}
		}
		if got := g.arrival(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if g.migrated() {
			t.Errorf("%s: the guest counts as sent to another QEMU", name)
		}
	}
	source := guest{}
	source.recordEvent("MIGRATION", []byte(`{"status": "postcopy-paused"}`))
	if got := source.arrival(); got != (launch.Arrival{}) {
		t.Errorf("a source says %+v", got)
	}
}
