package driver

import (
	"time"

	"drydock.dev/drydock/internal/rules/backoff"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
)

const (
	// firstDelay and longestDelay bound the back-off of a step that fails. The
	// first is short for what is only a moment too early: a socket appears
	// before anyone listens on it.
	firstDelay   = 10 * time.Millisecond
	longestDelay = 30 * time.Second
	// reportAfter is how often a step must fail before the VMI's owner hears of
	// it: what the next attempt mends is not worth a write (decision 044).
	reportAfter = 7
)

// failures keep steps that fail from being tried again too early. Reports have a
// back-off of their own: they go on in the midst of any other, since the VMI's
// owner has to hear of it, and an API server that is away stops no other step.
type failures struct{ step, report failure }

// failure is the memory of a step that fails.
type failure struct {
	step     guestlifecycle.Step
	err      error
	attempts int
	retry    time.Time
}

// note records how a step ended.
func (f *failures) note(step guestlifecycle.Step, err error, now time.Time) {
	if step == guestlifecycle.Report {
		f.report.note(step, err, now)
		return
	}
	f.step.note(step, err, now)
}

// delay holds a step back until a time, as one that has failed once.
func (f *failures) delay(step guestlifecycle.Step, err error, until time.Time) {
	f.step = failure{step: step, err: err, attempts: 1, retry: until}
}

// ended forgets the failure of a step that is known to have succeeded.
func (f *failures) ended(step guestlifecycle.Step) {
	if f.step.step == step {
		f.step = failure{}
	}
}

// note: a step that succeeds ends the failure of any other, too; it would not
// have been chosen with that one still in the way.
func (f *failure) note(step guestlifecycle.Step, err error, now time.Time) {
	if err == nil || step != f.step {
		*f = failure{step: step}
	}
	if err != nil {
		f.err = err
		f.attempts++
		f.retry = now.Add(backoff.Delay(firstDelay, longestDelay, f.attempts))
	}
}

// hold gives the step that may be taken now, and when to look again.
func (f *failures) hold(step guestlifecycle.Step, after time.Duration, o guestlifecycle.Observed) (guestlifecycle.Step, time.Duration) {
	if left := f.step.left(step, o.Now); left > 0 {
		step, after = guestlifecycle.Wait, backoff.Sooner(after, left)
		if o.Changed {
			step = guestlifecycle.Report
		}
	}
	if left := f.report.left(step, o.Now); left > 0 {
		step, after = guestlifecycle.Wait, backoff.Sooner(after, left)
	}
	return step, after
}

// left is how long a step has to wait; not at all if it is not the one that has
// failed.
func (f *failure) left(step guestlifecycle.Step, now time.Time) time.Duration {
	if f.err == nil || step != f.step {
		return 0
	}
	return max(0, f.retry.Sub(now))
}

// visible is the failure that the VMI's status shows. That it cannot be
// written is no news that it could tell.
func (f *failures) visible() error {
	if f.step.attempts < reportAfter {
		return nil
	}
	return f.step.err
}
