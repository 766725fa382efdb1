// Package runstate checks QEMU's trace in virt-launcher's log, which the VMI label debugLogs enables: only one of
// a VMI's QEMUs may run at a time. It must not collect the logs; the test does. Only tests may import it.
package runstate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// change matches QEMU's trace lines before a guest runs and after it has stopped.
var change = regexp.MustCompile(`\d+@(\d+)\.(\d{6}):vm_state_notify running ([01]) `)

// Span is a time in which a guest ran.
type Span struct {
	// QEMU is its pod's name.
	QEMU string
	From time.Time
	// To is zero for a guest that was not stopped: it still runs, or its QEMU was killed. The time of a kill is
	// unknown, so the span counts as endless: the guest of a QEMU that was killed while it ran must not run
	// elsewhere.
	To time.Time
}

// Spans parses the log of a pod.
func Spans(pod, log string) ([]Span, error) {
	var spans []Span
	running := false
	for _, found := range change.FindAllStringSubmatch(log, -1) {
		seconds, err := strconv.ParseInt(found[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("reading the time of %q in the log of pod %s: %w", found[0], pod, err)
		}
		micros, err := strconv.ParseInt(found[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("reading the time of %q in the log of pod %s: %w", found[0], pod, err)
		}
		at := time.Unix(seconds, micros*int64(time.Microsecond))
		switch begins := found[3] == "1"; {
		case begins && !running:
			spans = append(spans, Span{QEMU: pod, From: at})
		case !begins && running:
			spans[len(spans)-1].To = at
		}
		running = found[3] == "1"
	}
	return spans, nil
}

// OneAtATime returns an error if two QEMUs of a VMI ran at once.
func OneAtATime(spans []Span) error {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b Span) int { return a.From.Compare(b.From) })
	for i := 1; i < len(spans); i++ {
		before, after := spans[i-1], spans[i]
		if before.QEMU != after.QEMU && (before.To.IsZero() || before.To.After(after.From)) {
			return fmt.Errorf("the guest ran in pod %s from %s, and in pod %s from %s to %s",
				after.QEMU, clock(after.From), before.QEMU, clock(before.From), clock(before.To))
		}
	}
	return nil
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "its end"
	}
	return t.UTC().Format("15:04:05.000000")
}
