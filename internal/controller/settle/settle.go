// Package settle has a loop decide until its plan holds, and act until it comes to rest:
//
//   - Plan decides on what the caches show, asks for what the decision turns out to
//     depend on, and decides again;
//   - Rounds observes, plans and acts again after an act that more follows at once; Turns also tells when to look
//     again afterwards.
//
// It owns the order of that and its bounds, and nothing else: what is decided, asked and
// done is the caller's (decision 268).
package settle

import (
	"context"
	"fmt"
	"time"
)

// Plan decides until nothing has to be asked any more, and returns the plan. decide
// returns a plan and the question that it depends on, the zero value for none; ask has
// the answer observed before the next decision. A question that has been answered must
// not come up again: that is an error, which names it.
func Plan[P any, Q comparable](ctx context.Context, decide func() (P, Q), ask func(context.Context, Q) error) (P, error) {
	var none Q
	asked := map[Q]bool{}
	for {
		plan, question := decide()
		if question == none {
			return plan, nil
		}
		if asked[question] {
			return plan, fmt.Errorf("the decision still depends on %v, which has been asked for", question)
		}
		asked[question] = true
		if err := ask(ctx, question); err != nil {
			return plan, err
		}
	}
}

// Rounds takes rounds until one reports that nothing follows at once, at most so many.
// It reports whether the loop came to rest.
func Rounds(ctx context.Context, most int, round func(context.Context) (again bool, err error)) (rests bool, err error) {
	for range most {
		again, err := round(ctx)
		if err != nil || !again {
			return err == nil, err
		}
	}
	return false, nil
}

// again is when a loop that has not come to rest goes on, after others had their turn.
const again = time.Millisecond

// Turns is Rounds for a loop whose plan says when it is to be looked again, 0 for when something happens: it
// returns that of the last round, or at once when the loop has not come to rest.
func Turns(ctx context.Context, most int, round func(context.Context) (again bool, after time.Duration, err error)) (time.Duration, error) {
	var after time.Duration
	rests, err := Rounds(ctx, most, func(ctx context.Context) (goes bool, err error) {
		goes, after, err = round(ctx)
		return goes, err
	})
	if err == nil && !rests {
		after = again
	}
	return after, err
}
