package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// firstDelay is short, but long enough for the dead process's socket or port to become free.
	firstDelay = 200 * time.Millisecond
	maxDelay   = 5 * time.Second
	// A process that lived for settled did not die of its start.
	settled = 10 * time.Second
	// stopGrace is between SIGTERM and SIGKILL.
	stopGrace  = 8 * time.Second
	probeEvery = 50 * time.Millisecond
)

// Component is a program that runs until it is stopped.
type Component struct {
	Name string
	Spec Spec
	// Needs awaits the dependencies. It may be nil.
	Needs func(context.Context) error
	// Ready is a single probe that returns nil when the component serves. If it is nil, the
	// component is ready at once.
	Ready func(context.Context) error
}

// Task is a running component.
type Task struct {
	Component
	ready chan struct{}
	done  chan struct{}
	stop  context.CancelFunc

	mu  sync.Mutex
	pid int
	err error // why it is not ready
}

// Runner runs components.
type Runner struct {
	// Log gets one line per event.
	Log io.Writer
	// Candidates lists processes that an earlier supervisor may have left. It may be nil.
	Candidates func() ([]int, error)
}

// Run starts a component and restarts it until the context ends or Stop is called.
func (r *Runner) Run(ctx context.Context, c Component) *Task {
	ctx, cancel := context.WithCancel(ctx)
	t := &Task{
		Component: c, ready: make(chan struct{}), done: make(chan struct{}), stop: cancel,
		err: errors.New("it has not started yet"),
	}
	go func() {
		defer close(t.done)
		r.keep(ctx, t)
	}()
	return t
}

// keep restarts a component with backoff.
func (r *Runner) keep(ctx context.Context, t *Task) {
	delay := firstDelay
	for ctx.Err() == nil {
		began := time.Now()
		err := r.once(ctx, t)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > settled {
			delay = firstDelay
		}
		r.logf("%s ended (%v), starting it again in %s", t.Name, err, delay)
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
		delay = min(2*delay, maxDelay)
	}
}

// once runs a component from its start or adoption until its death.
func (r *Runner) once(ctx context.Context, t *Task) error {
	p, err := r.adopt(t)
	if err != nil {
		return err
	}
	if p == nil {
		if t.Needs != nil {
			if err := t.Needs(ctx); err != nil {
				return fmt.Errorf("waiting for what %s needs: %w", t.Name, err)
			}
		}
		if p, err = Start(t.Spec); err != nil {
			return err
		}
		r.logf("%s started as process %d", t.Name, p.PID)
	}
	t.setPID(p.PID)
	probing, stopProbing := context.WithCancel(ctx)
	var probe sync.WaitGroup
	probe.Go(func() { t.probe(probing) })
	err = p.Wait(ctx)
	stopProbing()
	probe.Wait()
	if ctx.Err() != nil {
		err = p.Stop(stopGrace)
	}
	t.setPID(0)
	status := p.Close()
	if err != nil {
		return err
	}
	return fmt.Errorf("%s", status)
}

func (r *Runner) adopt(t *Task) (*Process, error) {
	if r.Candidates == nil {
		return nil, nil
	}
	pids, err := r.Candidates()
	if err != nil {
		return nil, fmt.Errorf("looking for a running %s: %w", t.Name, err)
	}
	pid, found := Find(pids, t.Spec.Path, t.Spec.Argv)
	if !found {
		return nil, nil
	}
	p, err := Open(pid)
	if err != nil {
		return nil, nil // it has died since
	}
	r.logf("%s runs already as process %d", t.Name, pid)
	return p, nil
}

func (t *Task) probe(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		var err error
		if t.Ready != nil {
			err = t.Ready(ctx)
		}
		t.mu.Lock()
		t.err = err
		t.mu.Unlock()
		if err == nil {
			t.markReady()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (t *Task) markReady() {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.ready:
	default:
		close(t.ready)
	}
}

// Await blocks until the component has been ready once.
func (t *Task) Await(ctx context.Context) error {
	select {
	case <-t.ready:
		return nil
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		return fmt.Errorf("waiting for %s to be ready (its log is %s): %w: %w", t.Name, t.Spec.Log, ctx.Err(), t.err)
	}
}

// Stop ends the component and waits for its end.
func (t *Task) Stop() {
	t.stop()
	<-t.done
}

// PID is 0 without a process.
func (t *Task) PID() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pid
}

func (t *Task) setPID(pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pid = pid
}

func (r *Runner) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(r.Log, "%s "+format+"\n", append([]any{time.Now().Format(time.RFC3339Nano)}, args...)...) // a failure of the log can't be reported
}
