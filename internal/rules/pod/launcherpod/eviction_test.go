package launcherpod

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestWhichGuestsAnEvictionDoesNotStop(t *testing.T) {
	for name, c := range map[string]struct {
		strategy *v1.EvictionStrategy
		want     bool
	}{
		"none is named":            {nil, false},
		"an empty one":             {new(v1.EvictionStrategy("")), false},
		"None":                     {new(v1.EvictionStrategyNone), false},
		"LiveMigrate":              {new(v1.EvictionStrategyLiveMigrate), true},
		"LiveMigrateIfPossible":    {new(v1.EvictionStrategyLiveMigrateIfPossible), true},
		"External":                 {new(v1.EvictionStrategyExternal), true},
		"one of another release's": {new(v1.EvictionStrategy("Suspend")), true},
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.EvictionStrategy = c.strategy
		if got := Kept(vmi); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
