package qmptest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
)

// postCopyOfStuckTarget shows that a target whose main loop waits for memory, after the connection of its post-copy has
// broken, takes up another connection when it is told so out of band, and by nothing else.
func postCopyOfStuckTarget(p *pair) {
	r := p.toPostCopyByRelay()
	again, connected := p.relayed()
	p.breaksAndGoesOn(r, again, 0)
	p.breaksAndGoesOn(<-connected, p.uri, 1)
	p.fast()
	p.from.migrated("completed")
	p.to.migrated("completed")
	refusedWith(p.to.t, p.to.executeOutOfBand("query-status", nil), "GenericError", "does not support OOB")
	refusedWith(p.to.t, p.to.executeOutOfBand("no-such-command", nil), "CommandNotFound", "not been found")
	refusedWith(p.to.t, p.to.ExecuteOutOfBand(p.to.t.Context(), "migrate-recover", p.uri, nil), "GenericError", "'exec-oob' is unexpected")
}

// breaksAndGoesOn breaks a post-copy, which goes on by a new connection to uri.
func (p *pair) breaksAndGoesOn(r *relay, uri properties, before int) {
	p.to.t.Helper()
	_, _ = r.source.Close(), r.target.Close()
	p.from.migrated("postcopy-paused")
	p.to.migrated("postcopy-paused")
	read := p.to.readMemory(before)
	p.to.answersNothing()
	listen := func() error { return p.to.executeOutOfBand("migrate-recover", p.uri) }
	for range 2 { // also a QEMU that listens already
		if err := listen(); err != nil {
			p.to.t.Fatal(err)
		}
	}
	p.from.do("migrate", properties{"uri": uri["uri"], "resume": true}, nil)
	if err := <-read; err != nil {
		p.to.t.Fatalf("the memory has not come: %v", err)
	}
	p.to.migrated("postcopy-active")
	refusedWith(p.to.t, listen(), "GenericError", "only be run when postcopy is paused")
	p.from.migrated("postcopy-active")
}

// readMemory has QEMU's main loop read memory that has not come yet: another one each time.
func (c *conn) readMemory(n int) <-chan error {
	done := make(chan error, 1)
	go func() {
		line := fmt.Sprintf("xp/1wx %d", slowMemoryAt+slowMemory-(n+1)*(64<<10))
		done <- c.Execute(c.t.Context(), "human-monitor-command", properties{"command-line": line}, nil)
	}()
	return done
}

// answersNothing waits until QEMU leaves an ordinary command without an answer.
func (c *conn) answersNothing() {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(c.t.Context(), 300*time.Millisecond)
		err := c.outOfBand.Execute(ctx, "query-status", nil, nil)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return
		case err != nil || time.Now().After(deadline):
			c.t.Fatalf("QEMU still answers: %v", err)
		}
	}
}

func (c *conn) executeOutOfBand(command string, arguments any) error {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	return c.outOfBand.ExecuteOutOfBand(ctx, command, arguments, nil)
}

func refusedWith(t *testing.T, err error, class, part string) {
	t.Helper()
	var refusal *qmp.Error
	if !errors.As(err, &refusal) || refusal.Class != class || !strings.Contains(refusal.Desc, part) {
		t.Errorf("%v, want a refusal of class %s with %q", err, class, part)
	}
}
