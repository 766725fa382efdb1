// Package interleave orders what is compared, so that no side always comes first (decision 144).
//
// It measures nothing.
package interleave

import (
	"context"
	"slices"
)

// Step is one side of a comparison, or a part of it.
type Step func(context.Context) error

// Run goes through the steps up to one that fails, there in even turns and back in
// odd ones: what load does while it grows or falls, and what each step leaves to
// the next, is shared out.
func Run(ctx context.Context, number int, steps ...Step) error {
	order := slices.Clone(steps)
	if number%2 == 1 {
		slices.Reverse(order)
	}
	for _, step := range order {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
