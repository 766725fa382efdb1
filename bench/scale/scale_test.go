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
