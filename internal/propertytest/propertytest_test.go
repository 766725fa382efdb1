package propertytest

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestShortRunsGenerateTheSameInput(t *testing.T) {
	want := testing.Short() || seedIsGiven()
	generated := func() (all []uint64) {
		Check(t, func(t *rapid.T) { all = append(all, rapid.Uint64().Draw(t, "number")) })
		return all
	}
	if same := slices.Equal(generated(), generated()); same != want {
		t.Errorf("two checks generated the same input: %v, want %v", same, want)
	}
}
