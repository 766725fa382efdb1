package guestagent

import (
	"context"
	"math"
	"sync"
	"time"

	"drydock.dev/drydock/internal/qemu/agent"
	"drydock.dev/drydock/internal/rules/object/backoff"
)

const (
	// figuresEvery is the shortest time between two queries for figures, figuresAge the greatest age of an answer.
	figuresEvery   = 30 * time.Second
	figuresAge     = 5 * time.Minute
	figuresTimeout = 2 * time.Second
	// They are the waits after failed queries.
	firstPause   = 30 * time.Second
	longestPause = 5 * time.Minute
	// maxForFigures bounds the node's conversations for figures: silent agents must leave places to others.
	maxForFigures = 4
	// maxFilesystems bounds a guest's file systems at one time, maxMounts all that a Record has seen: each is a label in
	// Prometheus, which forgets none.
	maxFilesystems = 32
	maxMounts      = 64
	maxLabel       = 128
)

// Figures are the agent's answers for metrics. They must not be modified.
type Figures struct {
	Filesystems []agent.Filesystem
	Load        *agent.Load // nil if the agent does not know it
}

// mount identifies a file system in metrics.
type mount struct{ name, point, kind string }

// Record is the state of the queries for metrics. It outlives the connections to a guest's QEMU, so that a new connection
// has no new bounds. The zero value is a new guest's.
type Record struct {
	mu           sync.Mutex
	filesystems  []agent.Filesystem
	load         *agent.Load
	seen, loaded time.Time // when filesystems and load were queried
	next         time.Time // the earliest time of the next query
	failures     int       // since the last answer
	asking       bool
	mounts       map[mount]bool
}

// Figures returns the agent's last answer for metrics. With ask, it starts a query if the answer is old, and does not wait
// for it: an agent may need seconds.
func (a *Agent) Figures(ask bool) Figures {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.env.Record
	r.mu.Lock()
	defer r.mu.Unlock()
	now := a.env.Now()
	if ask && a.open && a.connected != nil && a.connected.Err() == nil && !r.asking && !now.Before(r.next) {
		r.asking, r.next = true, now.Add(figuresEvery)
		ctx := a.connected
		a.env.Go(func() { a.queryFigures(ctx) })
	}
	var f Figures
	if a.open && now.Sub(r.seen) <= figuresAge {
		f.Filesystems = r.filesystems
	}
	if a.open && now.Sub(r.loaded) <= figuresAge {
		f.Load = r.load
	}
	return f
}

func (a *Agent) queryFigures(ctx context.Context) {
	var list *[]agent.Filesystem
	var load *agent.Load
	err := a.talkForFigures(ctx, func(ctx context.Context, c *agent.Client) (err error) {
		if list, err = querySupported(ctx, c.Filesystems); err == nil {
			load, err = querySupported(ctx, c.Load)
		}
		return err
	})
	r := a.env.Record
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking = false
	now := a.env.Now()
	if err != nil {
		a.env.Log.V(1).Info("the guest agent did not answer for metrics", "reason", err.Error())
		r.failures++
		r.next = now.Add(backoff.Delay(firstPause, longestPause, r.failures))
		return
	}
	r.failures = 0
	if list != nil {
		r.filesystems, r.seen = r.valid(*list), now
	}
	if load != nil {
		r.load, r.loaded = validLoad(load), now
	}
}

func (a *Agent) talkForFigures(ctx context.Context, talk func(context.Context, *agent.Client) error) error {
	select {
	case a.env.ForFigures <- struct{}{}:
		defer func() { <-a.env.ForFigures }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, figuresTimeout)
	defer cancel()
	return a.Talk(ctx, talk)
}

// querySupported returns nil if the agent lacks the command, for example while the guest's file systems are frozen.
func querySupported[T any](ctx context.Context, question func(context.Context) (T, error)) (*T, error) {
	heard, err := question(ctx)
	if agent.Unsupported(err) {
		return nil, nil
	}
	return &heard, err
}

// valid returns the file systems with possible sizes, each once, with bounded names.
func (r *Record) valid(list []agent.Filesystem) []agent.Filesystem {
	if r.mounts == nil {
		r.mounts = map[mount]bool{}
	}
	var out []agent.Filesystem
	now := map[mount]bool{}
	for _, l := range list {
		of := mount{truncateTo(l.Name, maxLabel), truncateTo(l.Mountpoint, maxLabel), truncateTo(l.Type, maxLabel)}
		if len(out) == maxFilesystems || now[of] || !r.mounts[of] && len(r.mounts) == maxMounts ||
			l.TotalBytes <= 0 || l.UsedBytes < 0 || l.UsedBytes > l.TotalBytes {
			continue
		}
		now[of], r.mounts[of] = true, true
		out = append(out, agent.Filesystem{
			Name: of.name, Mountpoint: of.point, Type: of.kind, UsedBytes: l.UsedBytes, TotalBytes: l.TotalBytes,
		})
	}
	return out
}

// maxLoad is more than any system has processes.
const maxLoad = 1 << 22

func validLoad(l *agent.Load) *agent.Load {
	if l == nil {
		return nil
	}
	for _, value := range []float64{l.Minute, l.FiveMinutes, l.FifteenMinutes} {
		if math.IsNaN(value) || value < 0 || value > maxLoad {
			return nil
		}
	}
	return l
}
