package guest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
)

// asked is a query that is repeated after an event.
type asked struct {
	command, event string
	refresh        func(*Guest, context.Context)
	known          func(Facts) bool
}

var allAsked = map[string]asked{
	"NICs": {"qom-list", "DEVICE_DELETED", (*Guest).refreshNICs, func(f Facts) bool { return f.NICs.Present["blue"] }},
}

// TestAnEventDuringAQuestionIsNotLost: QEMU reports a change while it answers, so the answer may be older than the
// change.
func TestAnEventDuringAQuestionIsNotLost(t *testing.T) {
	for name, test := range allAsked {
		t.Run(name, func(t *testing.T) {
			qemu, g := plugged(t)
			before := qemu.Executed(test.command)
			change := func() {
				qemu.Emit(test.event, map[string]any{})
				<-g.woken
			}
			asks := func(when string, want int) {
				t.Helper()
				test.refresh(g.Guest, t.Context())
				if got := qemu.Executed(test.command) - before; got != want {
					t.Fatalf("%s QEMU was asked %d times, want %d", when, got, want)
				}
			}
			answerOutdated := func(json.RawMessage) (any, error) {
				change()
				qemu.Override(test.command, nil)
				return []any{}, nil
			}
			if before > 0 {
				change()
			}
			qemu.Override(test.command, answerOutdated)
			asks("at first", 1)
			asks("after a change during the first question", 2)
			asks("when the answer is known", 2)
			if f := g.Observe(); !test.known(f) {
				t.Errorf("the second answer is not known: %+v", f)
			}
			qemu.Override(test.command, answerOutdated)
			change()
			asks("after a change", 3)
			asks("after a change during another question", 4)
			asks("when the answer is known again", 4)
		})
	}
}

func TestAQuestionThatFailsIsPutAgain(t *testing.T) {
	for name, test := range allAsked {
		t.Run(name, func(t *testing.T) {
			qemu, g := plugged(t)
			test.refresh(g.Guest, t.Context())
			before := qemu.Executed(test.command)
			qemu.Emit(test.event, map[string]any{})
			<-g.woken
			qemu.Override(test.command, func(json.RawMessage) (any, error) { return nil, errors.New("not now") })
			test.refresh(g.Guest, t.Context())
			if f := g.Observe(); !test.known(f) {
				t.Errorf("what was known is forgotten: %+v", f)
			}
			qemu.Override(test.command, nil)
			for range 2 {
				test.refresh(g.Guest, t.Context())
				if got := qemu.Executed(test.command) - before; got != 2 {
					t.Errorf("QEMU was asked %d times, want 2", got)
				}
			}
		})
	}
}
