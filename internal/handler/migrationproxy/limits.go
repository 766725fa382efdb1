package migrationproxy

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"

	"drydock.dev/drydock/internal/contracts/migrationwire"
)

// Limits bound the waits for the peer. Zero values are the protocol's defaults.
type Limits struct {
	Greeting time.Duration
	Silence  time.Duration // after which the peer counts as gone
}

func (l Limits) greeting() time.Duration { return cmp.Or(l.Greeting, migrationwire.Greeting) }
func (l Limits) silence() time.Duration  { return cmp.Or(l.Silence, migrationwire.Silence) }

type calls struct {
	mu          sync.Mutex
	byMigration map[string]*connections
}

type connections struct {
	streams map[migrationwire.Channel]int
	// controls includes replaced connections; replace ends the newest.
	controls int
	replace  context.CancelFunc
}

// The caller holds calls.mu.
func (c *calls) connectionsOf(migration string) *connections {
	if c.byMigration == nil {
		c.byMigration = map[string]*connections{}
	}
	if c.byMigration[migration] == nil {
		c.byMigration[migration] = &connections{streams: map[migrationwire.Channel]int{}}
	}
	return c.byMigration[migration]
}

// The caller holds calls.mu.
func (c *calls) deleteUnused(migration string) {
	if m := c.byMigration[migration]; len(m.streams) == 0 && m.controls == 0 {
		delete(c.byMigration, migration)
	}
}

func (c *calls) stream(migration string, channel migrationwire.Channel) (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.connectionsOf(migration)
	if n := m.streams[channel]; n >= channel.MaxOpen() {
		return nil, fmt.Errorf("migration %s has %d connections of the channel %q already, which is the most that one may have", migration, n, channel)
	}
	m.streams[channel]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if m.streams[channel]--; m.streams[channel] == 0 {
			delete(m.streams, channel)
		}
		c.deleteUnused(migration)
	}, nil
}

// control replaces the migration's control connection; replaced ends when the next one comes. It calls connected with true
// at the first connection and with false at the end of the last.
func (c *calls) control(migration string, connected func(bool)) (replaced context.Context, end func()) {
	if connected == nil {
		connected = func(bool) {}
	}
	replaced, cancel := context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.connectionsOf(migration)
	if m.replace != nil {
		m.replace()
	}
	m.replace = cancel
	if m.controls++; m.controls == 1 {
		connected(true)
	}
	return replaced, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		cancel()
		if m.controls--; m.controls == 0 {
			m.replace = nil
			connected(false)
		}
		c.deleteUnused(migration)
	}
}

// limitedLog limits the lines that other hosts cause.
type limitedLog struct {
	log        logr.Logger
	limiter    *rate.Limiter
	suppressed atomic.Int64
}

func newLimitedLog(log logr.Logger) *limitedLog {
	return &limitedLog{log: log, limiter: rate.NewLimiter(rate.Every(5*time.Second), 20)}
}

func (s *limitedLog) info(what string, values ...any) { s.infoTo(s.log, what, values...) }

// infoTo logs by another logger within the same limit.
func (s *limitedLog) infoTo(log logr.Logger, what string, values ...any) {
	if !s.limiter.Allow() {
		s.suppressed.Add(1)
		return
	}
	if n := s.suppressed.Swap(0); n > 0 {
		values = append(values, "unsaid", n)
	}
	log.Info(what, values...)
}
