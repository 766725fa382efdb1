// Package interleave orders the sides of a comparison, so that none always comes first. It must measure nothing.
package interleave

import (
	"context"
	"slices"
)

// Step is a part of one side.
type Step func(context.Context) error

// Run runs the steps until one fails, forwards for even numbers and backwards for odd ones. This
// balances the effects of changing load and of each step on the next.
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
