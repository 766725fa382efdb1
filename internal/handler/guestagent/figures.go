package guestagent

import (
	"context"
	"math"
	"time"

	"drydock.dev/drydock/internal/qemu/agent"
)

const (
	// figuresEvery is the shortest time between two queries for figures, and figuresAge the greatest age of an answer.
	figuresEvery = 30 * time.Second
	figuresAge   = 5 * time.Minute
	// maxFilesystems and maxMounts bound a guest's file systems at one time, and those that it has shown under any name
	// since its agent's port exists: each is a label in Prometheus, which forgets none.
	maxFilesystems = 32
	maxMounts      = 64
	maxLabel       = 128
)

// Figures are the agent's answers for metrics. They must not be modified.
type Figures struct {
	Filesystems []agent.Filesystem
	// Load is nil if the agent does not know it.
	Load *agent.Load
}

// mount identifies a file system in metrics.
type mount struct{ name, point, kind string }

// figures is the state of the queries for metrics, guarded by Agent.mu.
type figures struct {
	answer Figures
	// begun is the time of the last query, answered that of answer.
	begun, answered time.Time
	asking          bool
	mounts          map[mount]bool
}

// Figures returns the agent's last answer for metrics and, if it may be asked, has it queried again if that was long ago:
// an agent may need seconds, for which no scrape waits. Nothing queries without calls.
func (a *Agent) Figures(ask bool) Figures {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.env.Now()
	if ask && a.open && a.connected != nil && a.connected.Err() == nil && !a.figures.asking && now.Sub(a.figures.begun) >= figuresEvery {
		a.figures.asking, a.figures.begun = true, now
		ctx := a.connected
		a.env.Go(func() { a.queryFigures(ctx) })
	}
	if !a.open || now.Sub(a.figures.answered) > figuresAge {
		return Figures{}
	}
	return a.figures.answer
}

func (a *Agent) queryFigures(ctx context.Context) {
	var list []agent.Filesystem
	var load *agent.Load
	err := a.Talk(ctx, func(ctx context.Context, c *agent.Client) error {
		if err := answer(ctx, c.Filesystems, &list); err != nil {
			return err
		}
		l, err := c.Load(ctx)
		if err == nil {
			load = &l
		} else if !agent.Unsupported(err) {
			return err
		}
		return nil
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.figures.asking = false
	if err != nil {
		a.env.Log.V(1).Info("the guest agent did not answer for metrics", "reason", err.Error())
		return
	}
	a.figures.answer = Figures{Filesystems: a.figures.believed(list), Load: believedLoad(load)}
	a.figures.answered = a.env.Now()
}

// believed returns the file systems with possible sizes, each once, with bounded names.
func (f *figures) believed(list []agent.Filesystem) []agent.Filesystem {
	if f.mounts == nil {
		f.mounts = map[mount]bool{}
	}
	var out []agent.Filesystem
	now := map[mount]bool{}
	for _, l := range list {
		of := mount{truncateTo(l.Name, maxLabel), truncateTo(l.Mountpoint, maxLabel), truncateTo(l.Type, maxLabel)}
		if len(out) == maxFilesystems || now[of] || !f.mounts[of] && len(f.mounts) == maxMounts ||
			l.TotalBytes <= 0 || l.UsedBytes < 0 || l.UsedBytes > l.TotalBytes {
			continue
		}
		now[of], f.mounts[of] = true, true
		out = append(out, agent.Filesystem{
			Name: of.name, Mountpoint: of.point, Type: of.kind, UsedBytes: l.UsedBytes, TotalBytes: l.TotalBytes,
		})
	}
	return out
}

// maxLoad is more than any system has processes.
const maxLoad = 1 << 22

func believedLoad(l *agent.Load) *agent.Load {
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
