package interleave

import (
	"context"
	"errors"
	"testing"
)

func TestWhoIsFirstChanges(t *testing.T) {
	broken := errors.New("broken")
	for number, want := range []string{"ab", "cb"} {
		took := ""
		step := func(name string, err error) Step {
			return func(context.Context) error {
				took += name
				return err
			}
		}
		err := Run(t.Context(), number, step("a", nil), step("b", broken), step("c", nil))
		if took != want || !errors.Is(err, broken) {
			t.Errorf("turn %d took %q and ended with %v, want %q and %v", number, took, err, want, broken)
		}
	}
}
