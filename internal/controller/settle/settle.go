// Package settle makes the plans of loops that may have to ask the API server first:
// decide on what the caches show, ask for what the decision turns out to depend on,
// and decide again.
//
// It owns the order of that and nothing else: what is decided and what can be asked is
// the caller's.
package settle

import (
	"context"
	"fmt"
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
