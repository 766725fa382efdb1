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

// Limits are how long the virt-handler at the other end is waited for. Zero means what virt-handlers have agreed on.
type Limits struct {
	// Greeting is how long a connection may take to its answer.
	Greeting time.Duration
	// Silence is after how long without a word on the control connection the other side counts as gone.
	Silence time.Duration
}

func (l Limits) greeting() time.Duration { return cmp.Or(l.Greeting, migrationwire.Greeting) }
func (l Limits) silence() time.Duration  { return cmp.Or(l.Silence, migrationwire.Silence) }

// calls are the connections of each migration. The zero value has none.
type calls struct {
	mu          sync.Mutex
	byMigration map[string]*connections
}

type connections struct {
	// streams are those between the QEMUs, by channel.
	streams map[migrationwire.Channel]int
	// controls are the control connections that have not ended, replaced ones included;
	// replace ends the newest.
	controls int
	replace  context.CancelFunc
}

// of are those of a migration; calls.mu is held.
func (c *calls) of(migration string) *connections {
	if c.byMigration == nil {
		c.byMigration = map[string]*connections{}
	}
	if c.byMigration[migration] == nil {
		c.byMigration[migration] = &connections{streams: map[migrationwire.Channel]int{}}
	}
	return c.byMigration[migration]
}

// tidy forgets a migration without connections; calls.mu is held.
func (c *calls) tidy(migration string) {
	if m := c.byMigration[migration]; len(m.streams) == 0 && m.controls == 0 {
		delete(c.byMigration, migration)
	}
}

// stream counts one of a channel.
func (c *calls) stream(migration string, channel migrationwire.Channel) (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.of(migration)
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
		c.tidy(migration)
	}, nil
}

// control makes a connection the one of its migration. replaced ends when another one is.
// connected hears of the first and of the end of the last.
func (c *calls) control(migration string, connected func(bool)) (replaced context.Context, end func()) {
	if connected == nil {
		connected = func(bool) {}
	}
	replaced, cancel := context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.of(migration)
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
		c.tidy(migration)
	}
}

// seldom writes a few lines of the log, however many there are: what is logged here,
// others cause.
type seldom struct {
	log     logr.Logger
	limiter *rate.Limiter
	unsaid  atomic.Int64
}

func newSeldom(log logr.Logger) *seldom {
	return &seldom{log: log, limiter: rate.NewLimiter(rate.Every(5*time.Second), 20)}
}

func (s *seldom) say(what string, values ...any) {
	if !s.limiter.Allow() {
		s.unsaid.Add(1)
		return
	}
	if n := s.unsaid.Swap(0); n > 0 {
		values = append(values, "unsaid", n)
	}
	s.log.Info(what, values...)
}
