package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"time"
)

// heartbeat is the interval at which running steps are reported.
const heartbeat = 30 * time.Second

// progress reports the progress of the build. Only one goroutine calls its methods.
type progress struct {
	out     io.Writer
	now     func() time.Time
	began   time.Time
	steps   []step
	running map[string]time.Time
	cpu     time.Duration
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, now: time.Now, running: map[string]time.Time{}}
}

func (p *progress) begin(steps []step) {
	p.steps, p.began = steps, p.now()
}

func (p *progress) started(s step) {
	p.running[s.name] = p.now()
}

func (p *progress) done(r result) {
	delete(p.running, r.step.name)
	p.cpu += r.cpu
	p.say("%s: done in %s, with %s of CPU time", p.title(r.step), minutes(r.took), minutes(r.cpu))
}

// still reports the running steps, so that a long one does not look stuck.
func (p *progress) still() {
	for _, s := range p.steps {
		if began, ok := p.running[s.name]; ok {
			p.say("%s: for %s so far", p.title(s), minutes(p.now().Sub(began)))
		}
	}
}

// failed prints the step's output and returns an error that names the step.
func (p *progress) failed(r result) error {
	p.say("%s: failed after %s; it said:", p.title(r.step), minutes(r.took))
	fmt.Fprintf(p.out, "%s\n", bytes.TrimSpace(r.output))
	return fmt.Errorf("%s: %w", p.title(r.step), r.err)
}

func (p *progress) end() {
	p.say("all %d steps done, with %s of CPU time", len(p.steps), minutes(p.cpu))
}

func (p *progress) title(s step) string {
	n := slices.IndexFunc(p.steps, func(other step) bool { return other.name == s.name })
	return fmt.Sprintf("step %d of %d, %s", n+1, len(p.steps), s.name)
}

// say writes a line that begins with the time since the start.
func (p *progress) say(format string, args ...any) {
	fmt.Fprintf(p.out, "%6s  %s\n", minutes(p.now().Sub(p.began)), fmt.Sprintf(format, args...))
}

func minutes(d time.Duration) string {
	seconds := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}
