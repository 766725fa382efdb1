package scale

import (
	"math"
	"testing"
)

func TestTheExponentTellsHowTheCostGrows(t *testing.T) {
	for name, c := range map[string]struct {
		perVMI func(n int) float64
		want   float64
	}{
		"each VMI costs the same":          {func(int) float64 { return 4 }, 1},
		"each VMI looks at all the others": {func(n int) float64 { return float64(n) / 100 }, 2},
	} {
		var costs []cost
		for _, n := range []int{100, 500, 1000, 5000} {
			costs = append(costs, cost{n, c.perVMI(n)})
		}
		if got := exponent(costs); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: got %g, want %g", name, got, c.want)
		}
	}
}

func TestSizesAreReadInOrder(t *testing.T) {
	got, err := (&Options{sizes: "1000,100"}).numbers()
	if err != nil || len(got) != 2 || got[0] != 100 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := (&Options{sizes: "1000,many"}).numbers(); err == nil {
		t.Error("many is not a number")
	}
}

func TestTheSimulatedPagesOfMetricsAreSummed(t *testing.T) {
	page := "# HELP x\nworkqueue_depth{controller=\"vmi\",name=\"vmi\",priority=\"0\"} 3\nworkqueue_depth{controller=\"vmi\",name=\"vmi\",priority=\"-100\"} 4\nworkqueue_depth{controller=\"vm\"} 9\n"
	if got := sum(page, "workqueue_depth", `controller="vmi"`); got != 7 {
		t.Errorf("got %g, want 7", got)
	}
}
