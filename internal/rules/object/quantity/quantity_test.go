package quantity

import (
	"math"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestAmounts(t *testing.T) {
	memory := func(q resource.Quantity) error { return Memory(q) }
	share := func(name corev1.ResourceName, pieces bool) func(resource.Quantity) error {
		return func(q resource.Quantity) error { return Share(name, q, pieces) }
	}
	for name, c := range map[string]struct {
		judge    func(resource.Quantity) error
		good, no []string
	}{
		"memory":  {memory, []string{"1", "128Mi", "1.5Gi", "16Ti", "1e12", "+2Mi"}, []string{"0", "-1Mi", "1m", "0.5", "17Ti", "8Ei", "9223372036854775807", "1e30"}},
		"storage": {Storage, []string{"1", "0.5", "100Gi", "1Ei"}, []string{"0", "-1", "2Ei", "1e30"}},
		"rate":    {Rate, []string{"0", "64Mi"}, []string{"-1", "1e30"}},
		"cpu":     {share(corev1.ResourceCPU, false), []string{"0", "100m", "255"}, []string{"-1m", "65537", "1e30"}},
		"cpus":    {CPUs, []string{"1m", "65536"}, []string{"0", "65537"}},
		"devices": {share("example.com/device", true), []string{"0", "3"}, []string{"500m", "-1", "1e30"}},
		"pod":     {share(corev1.ResourceMemory, false), []string{"0", "1.5", "16Ti"}, []string{"8Ei"}},
	} {
		for _, text := range c.good {
			if err := c.judge(resource.MustParse(text)); err != nil {
				t.Errorf("%s: %s: %v", name, text, err)
			}
		}
		for _, text := range c.no {
			if err := c.judge(resource.MustParse(text)); err == nil {
				t.Errorf("%s: %s is accepted", name, text)
			}
		}
	}
}

// Every accepted quantity must allow arithmetic: with all additions to a guest's memory it must still be a positive
// number of bytes.
func TestWhatIsAcceptedCanBeAddedTo(t *testing.T) {
	suffixes := []string{"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "e18", "e30"}
	numbers := rand.New(rand.NewPCG(1, 2)) // the same numbers each time
	accepted := 0
	for range 20_000 {
		text := resource.NewQuantity(numbers.Int64N(math.MaxInt64)>>numbers.IntN(63), resource.DecimalSI).String()
		q, err := resource.ParseQuantity(text + suffixes[numbers.IntN(len(suffixes))])
		if err != nil || Memory(q) != nil {
			continue
		}
		accepted++
		if bytes := q.Value(); bytes <= 0 || bytes*4+1<<40 <= bytes || q.Cmp(*resource.NewQuantity(bytes, resource.BinarySI)) != 0 {
			t.Errorf("%s is accepted, and is %d bytes", q.String(), bytes)
		}
	}
	if accepted < 1000 {
		t.Errorf("only %d of the amounts were accepted", accepted)
	}
}

func TestPagesHaveOneName(t *testing.T) {
	for text, want := range map[string]string{
		"2Mi": "2Mi", "2048Ki": "2Mi", "+2Mi": "2Mi", "02Mi": "2Mi", "2097152": "2Mi", "1Gi": "1Gi", "1024Mi": "1Gi",
		"": "", "big": "", "0.5": "", "1m": "", "1": "", "4Ki": "", "3Mi": "", "2M": "", "-2Mi": "",
	} {
		got, err := Pages(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("%q is %s (%v), want %q", text, got.String(), err, want)
		}
	}
}
