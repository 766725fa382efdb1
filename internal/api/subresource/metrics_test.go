package subresource

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/contracts/nodeapi"
)

func TestStreamsAreCountedWhileTheyAreOpen(t *testing.T) {
	counted := newStreams()[nodeapi.Console]
	registry := prometheus.NewRegistry()
	registry.MustRegister(counted.gauge)
	vmi := types.NamespacedName{Namespace: "ns", Name: "vm"}
	for i, step := range []struct{ change, want int }{{1, 1}, {1, 2}, {-1, 1}, {-1, 0}, {1, 1}} {
		counted.add(vmi, step.change)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, f := range families {
			for _, m := range f.GetMetric() {
				got += int(m.GetGauge().GetValue())
			}
		}
		if got != step.want || step.want == 0 && len(families) != 0 {
			t.Errorf("step %d: %d streams in %d families, want %d", i, got, len(families), step.want)
		}
	}
}
