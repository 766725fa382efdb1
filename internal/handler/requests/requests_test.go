package requests

import (
	"context"
	"errors"
	"testing"

	"drydock.dev/drydock/internal/rules/vmi/power"
)

// owned is a Requests whose owner is the test.
type owned struct {
	*Requests
	t     *testing.T
	woken chan struct{}
}

func open(t *testing.T) *owned {
	o := &owned{t: t, woken: make(chan struct{}, 1)}
	o.Requests = New(func() { o.woken <- struct{}{} })
	return o
}

// ask asks on another goroutine, and returns once the owner was woken.
func (o *owned) ask(ctx context.Context, r power.Request) <-chan error {
	result := make(chan error, 1)
	go func() { result <- o.Ask(ctx, r) }()
	<-o.woken
	return result
}

func (o *owned) take(want ...power.Request) []Turn {
	o.t.Helper()
	turns := o.Take()
	if len(turns) != len(want) {
		o.t.Fatalf("%d requests wait, want %v", len(turns), want)
	}
	for i := range turns {
		if turns[i].Request != want[i] {
			o.t.Fatalf("request %d is %s, want %s", i, turns[i].Request, want[i])
		}
	}
	return turns
}

func TestUsersGetTheResultsOfTheirRequests(t *testing.T) {
	o := open(t)
	pause, reset := o.ask(t.Context(), power.Pause), o.ask(t.Context(), power.Reset)
	again := o.ask(t.Context(), power.Reset)
	failed := errors.New("QEMU is busy")
	turns := o.take(power.Pause, power.Reset)
	turns[0].Finish(nil)
	turns[1].Finish(failed)
	if err := <-pause; err != nil {
		t.Errorf("the pause: %v", err)
	}
	for name, result := range map[string]<-chan error{"the reset": reset, "the reset at the same time": again} {
		if err := <-result; !errors.Is(err, failed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if o.take(); len(o.results) != 0 {
		t.Errorf("%d results are left", len(o.results))
	}
}

func TestAUserJoinsARebootThatIsUnderWay(t *testing.T) {
	o := open(t)
	first := o.ask(t.Context(), power.Reboot)
	turn := o.take(power.Reboot)[0]
	second := o.ask(t.Context(), power.Reboot)
	o.take()
	turn.Finish(nil)
	for name, result := range map[string]<-chan error{"the first": first, "the second": second} {
		if err := <-result; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	o.ask(t.Context(), power.Reboot)
	if o.take(power.Reboot)[0].Finish(nil); len(o.results) != 0 {
		t.Errorf("%d results are left", len(o.results))
	}
}

func TestARequestOfAUserWhoHasGoneHasNoEffect(t *testing.T) {
	o := open(t)
	ctx, leave := context.WithCancel(t.Context())
	gone := o.ask(ctx, power.Pause)
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the user who has gone: %v", err)
	}
	if o.take(); len(o.results) != 0 {
		t.Errorf("%d results are left", len(o.results))
	}
	// One who goes after the turn of the request does not change its result.
	ctx, leave = context.WithCancel(t.Context())
	gone = o.ask(ctx, power.Pause)
	turn := o.take(power.Pause)[0]
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the user who has gone later: %v", err)
	}
	if turn.Finish(nil); len(o.results) != 0 {
		t.Errorf("%d results are left", len(o.results))
	}
}

func TestRequestsToAGuestThatHasEndedAreRefused(t *testing.T) {
	const ended = "the guest does not run; try again"
	o := open(t)
	waits := o.ask(t.Context(), power.Pause)
	o.Close(ended)
	for name, err := range map[string]error{"one that waits": <-waits, "a later one": o.Ask(t.Context(), power.Reset)} {
		var refusal *power.Refusal
		if !errors.As(err, &refusal) || refusal.Message != ended {
			t.Errorf("%s: %v", name, err)
		}
	}
}
