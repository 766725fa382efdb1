// Package settle runs a loop's decisions until its plan has no question, and its actions until nothing follows at once:
//
//   - Plan decides from the caches, asks for the facts on which the decision depends, and decides again;
//   - Rounds observes, plans and acts, again if an action follows at once; Turns also returns the delay until the next
//     round.
//
// It owns that order and its bounds. Decisions, questions and actions are the caller's.
package settle

import (
	"context"
	"fmt"
	"time"
)

// Plan decides until no question is left. decide returns a plan and the question on which it depends, the zero value for
// none. ask stores the answer for the next decision. A repeated question is an error.
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

// Rounds runs rounds, at most most, until nothing follows at once. It reports whether it got there.
func Rounds(ctx context.Context, most int, round func(context.Context) (again bool, err error)) (rests bool, err error) {
	for range most {
		again, err := round(ctx)
		if err != nil || !again {
			return err == nil, err
		}
	}
	return false, nil
}

// again is the pause of a loop that has not come to rest, in which other keys have their turn.
const again = time.Millisecond

// Turns is Rounds for a plan with a requeue delay, 0 for the next event. It returns the last round's, or a short one if
// more is to do.
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
