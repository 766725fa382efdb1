// Package retry delays a driver's failing steps, and decides which failures the VMI's owner sees.
//
// It owns the attempts and times of one VMI's failures. It must not decide which step is next, and writes nothing.
package retry

import (
	"time"

	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

const (
	// firstDelay is short for a step that is a moment too early: a socket appears before its program listens.
	firstDelay   = 10 * time.Millisecond
	longestDelay = 30 * time.Second
	// reportAfter is the number of failures before the VMI's owner is told: one that the next attempt cures is not worth
	// a write (decision 044).
	reportAfter = 7
)

// Failures delays failing steps. The zero value has no failure. Reports have their own backoff: the VMI's owner must be
// told while another step fails, and an unreachable API server must not stop other steps.
type Failures struct{ step, report Failure }

// Failure is the failure of one step. The zero value is none.
type Failure struct {
	step     vmihandler.Step
	err      error
	attempts int
	retry    time.Time
}

// Record records the result of a step; a nil err is a success.
func (f *Failures) Record(step vmihandler.Step, err error, now time.Time) {
	if step == vmihandler.Report {
		f.report.Record(step, err, now)
		return
	}
	f.step.Record(step, err, now)
}

// Clear forgets a step's failure.
func (f *Failures) Clear(step vmihandler.Step) {
	if f.step.step == step {
		f.step = Failure{}
	}
}

// Postpone delays the next attempt of a step until then, as if it had failed once.
func (f *Failures) Postpone(step vmihandler.Step, reason error, then time.Time) {
	f.step = Failure{step: step, err: reason, attempts: 1, retry: then}
}

// Record records the result of a step. Success also clears another step's failure: that step is no longer the next one.
func (f *Failure) Record(step vmihandler.Step, err error, now time.Time) {
	if err == nil || step != f.step {
		*f = Failure{step: step}
	}
	if err != nil {
		f.err = err
		f.attempts++
		f.retry = now.Add(backoff.Delay(firstDelay, longestDelay, f.attempts))
	}
}

// ApplyBackoff returns the step to take now instead of the wanted one, and the delay until the next round.
func (f *Failures) ApplyBackoff(step vmihandler.Step, after time.Duration, o vmihandler.Observed) (vmihandler.Step, time.Duration) {
	if left := f.step.RemainingDelay(step, o.Now); left > 0 {
		step, after = vmihandler.Wait, backoff.Sooner(after, left)
		if o.Changed {
			step = vmihandler.Report
		}
	}
	if left := f.report.RemainingDelay(step, o.Now); left > 0 {
		step, after = vmihandler.Wait, backoff.Sooner(after, left)
	}
	return step, after
}

// RemainingDelay returns the delay until the next attempt, 0 for a step that has not failed.
func (f *Failure) RemainingDelay(step vmihandler.Step, now time.Time) time.Duration {
	if f.err == nil || step != f.step {
		return 0
	}
	return max(0, f.retry.Sub(now))
}

// Visible returns the failure that the VMI's owner should see, nil for none; never a report's, which can't be written.
func (f *Failures) Visible() error {
	if f.step.attempts < reportAfter {
		return nil
	}
	return f.step.err
}

// BecameVisible reports whether the last failure is the first that the VMI's owner should see.
func (f *Failures) BecameVisible() bool { return f.step.attempts == reportAfter }
