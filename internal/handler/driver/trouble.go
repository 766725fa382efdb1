package driver

import (
	"time"

	"drydock.dev/drydock/internal/handler/vmi"
)

const (
	// firstDelay and longestDelay bound the back-off of a step that fails. The
	// first is short for what is only a moment too early: a socket appears
	// before anyone listens on it.
	firstDelay   = 10 * time.Millisecond
	longestDelay = 30 * time.Second
	// worthSaying is how often a step must fail before the VMI's owner hears of
	// it: what the next attempt mends is not worth a write.
	worthSaying = 7
)

// trouble is the memory of a step that fails.
type trouble struct {
	step     vmi.Step
	err      error
	attempts int
	retry    time.Time
}

// note records how a step ended. Success in one step says nothing about the
// trouble with another one, but if another step is tried at all, then what was
// in the way of it is over. Reports go on in the midst of other trouble.
func (t *trouble) note(step vmi.Step, err error, now time.Time) {
	switch {
	case err == nil:
		if step == t.step || step != vmi.Report {
			*t = trouble{}
		}
		return
	case step != t.step && step == vmi.Report && t.err != nil:
		return // the older trouble goes on; reporting is tried again with it
	case step != t.step:
		*t = trouble{step: step}
	}
	t.err = err
	t.attempts++
	t.retry = now.Add(delay(t.attempts))
}

func delay(attempts int) time.Duration {
	d := firstDelay
	for range attempts - 1 {
		d = min(2*d, longestDelay)
	}
	return d
}

// hold keeps a step that has failed from being tried again too early. Meanwhile
// the status, which may have to say so, is still kept up to date.
func (t *trouble) hold(step vmi.Step, after time.Duration, o vmi.Observed) (vmi.Step, time.Duration) {
	if t.err == nil || step != t.step {
		return step, after
	}
	left := t.retry.Sub(o.Now)
	switch {
	case left <= 0:
		return step, after
	case step != vmi.Report && o.Changed:
		return vmi.Report, left
	}
	if after > 0 {
		left = min(left, after)
	}
	return vmi.Wait, left
}

// visible is the trouble that the VMI's status tells of.
func (t *trouble) visible() error {
	if t.step == vmi.Report || t.attempts < worthSaying {
		return nil
	}
	return t.err
}
