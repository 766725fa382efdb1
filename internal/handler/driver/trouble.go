package driver

import (
	"time"

	"drydock.dev/drydock/internal/handler/vmi"
	"drydock.dev/drydock/internal/rules/backoff"
)

const (
	// firstDelay and longestDelay bound the back-off of a step that fails. The
	// first is short for what is only a moment too early: a socket appears
	// before anyone listens on it.
	firstDelay   = 10 * time.Millisecond
	longestDelay = 30 * time.Second
	// worthSaying is how often a step must fail before the VMI's owner hears of
	// it: what the next attempt mends is not worth a write (decision 044).
	worthSaying = 7
)

// troubles keep steps that fail from being tried again too early. Reports have a
// trouble of their own: they go on in the midst of any other, since the VMI's
// owner has to hear of it, and an API server that is away stops no other step.
type troubles struct{ step, report trouble }

// trouble is the memory of a step that fails.
type trouble struct {
	step     vmi.Step
	err      error
	attempts int
	retry    time.Time
}

// note records how a step ended.
func (t *troubles) note(step vmi.Step, err error, now time.Time) {
	if step == vmi.Report {
		t.report.note(step, err, now)
		return
	}
	t.step.note(step, err, now)
}

// note: a step that succeeds ends the trouble with any other, too; it would not
// have been chosen with that one still in the way.
func (t *trouble) note(step vmi.Step, err error, now time.Time) {
	if err == nil || step != t.step {
		*t = trouble{step: step}
	}
	if err != nil {
		t.err = err
		t.attempts++
		t.retry = now.Add(backoff.Delay(firstDelay, longestDelay, t.attempts))
	}
}

// hold gives the step that may be taken now, and when to look again.
func (t *troubles) hold(step vmi.Step, after time.Duration, o vmi.Observed) (vmi.Step, time.Duration) {
	if left := t.step.left(step, o.Now); left > 0 {
		step, after = vmi.Wait, sooner(after, left)
		if o.Changed {
			step = vmi.Report
		}
	}
	if left := t.report.left(step, o.Now); left > 0 {
		step, after = vmi.Wait, sooner(after, left)
	}
	return step, after
}

// left is how long a step has to wait; not at all if it is not the one that has
// failed.
func (t *trouble) left(step vmi.Step, now time.Time) time.Duration {
	if t.err == nil || step != t.step {
		return 0
	}
	return max(0, t.retry.Sub(now))
}

// sooner is the shorter of two waits, each of which may be none.
func sooner(wait, other time.Duration) time.Duration {
	if wait == 0 || other == 0 {
		return max(wait, other)
	}
	return min(wait, other)
}

// visible is the trouble that the VMI's status shows. That it cannot be
// written is no news that it could tell.
func (t *troubles) visible() error {
	if t.step.attempts < worthSaying {
		return nil
	}
	return t.step.err
}
