package driver

import (
	"time"

	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

const (
	// They bound the backoff of a failing step. The first is short for a step that is a moment too early: a socket
	// appears before anyone listens on it.
	firstDelay   = 10 * time.Millisecond
	longestDelay = 30 * time.Second
	// reportAfter is the number of failures before the VMI's owner is told: one that the next attempt fixes is not
	// worth a write (decision 044).
	reportAfter = 7
)

// failures delays the retry of failing steps. Reports have their own backoff: the VMI's owner has to be told while
// another step fails, and an unreachable API server must not stop other steps.
type failures struct{ step, report failure }

type failure struct {
	step     vmihandler.Step
	err      error
	attempts int
	retry    time.Time
}

func (f *failures) record(step vmihandler.Step, err error, now time.Time) {
	if step == vmihandler.Report {
		f.report.record(step, err, now)
		return
	}
	f.step.record(step, err, now)
}

func (f *failures) clear(step vmihandler.Step) {
	if f.step.step == step {
		f.step = failure{}
	}
}

// Success also clears another step's failure: this step would not have been chosen with that still in the way.
func (f *failure) record(step vmihandler.Step, err error, now time.Time) {
	if err == nil || step != f.step {
		*f = failure{step: step}
	}
	if err != nil {
		f.err = err
		f.attempts++
		f.retry = now.Add(backoff.Delay(firstDelay, longestDelay, f.attempts))
	}
}

func (f *failures) applyBackoff(step vmihandler.Step, after time.Duration, o vmihandler.Observed) (vmihandler.Step, time.Duration) {
	if left := f.step.remainingDelay(step, o.Now); left > 0 {
		step, after = vmihandler.Wait, backoff.Sooner(after, left)
		if o.Changed {
			step = vmihandler.Report
		}
	}
	if left := f.report.remainingDelay(step, o.Now); left > 0 {
		step, after = vmihandler.Wait, backoff.Sooner(after, left)
	}
	return step, after
}

// It is 0 for a step that has not failed.
func (f *failure) remainingDelay(step vmihandler.Step, now time.Time) time.Duration {
	if f.err == nil || step != f.step {
		return 0
	}
	return max(0, f.retry.Sub(now))
}

// visible never returns the failure of a report, which could not be written.
func (f *failures) visible() error {
	if f.step.attempts < reportAfter {
		return nil
	}
	return f.step.err
}
