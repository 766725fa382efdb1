package processmetrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"

	"drydock.dev/drydock/internal/metrictable"
)

// ofQueue begins the names of metrics of queues in both registries, and theirs KubeVirt's.
const (
	ofQueue = "workqueue_"
	theirs  = "kubevirt_" + ofQueue
)

// Queues adds to the metrics of from those of the process's queues by KubeVirt's names. One package of a process measures
// its queues: controller-runtime's, whose metrics are in from, or Kubernetes' own, if it is linked. Virt-api's library
// links it into all components.
func Queues(from prometheus.Gatherer) prometheus.Gatherer {
	return queuesOf(from, legacyregistry.DefaultGatherer)
}

func queuesOf(from, other prometheus.Gatherer) prometheus.Gatherer {
	help := map[string]string{}
	for _, name := range metrictable.Names(metrictable.Process) {
		if strings.HasPrefix(name, theirs) {
			help[name] = metrictable.Get(name).Help
		}
	}
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := from.Gather()
		more, _ := other.Gather() // it has metrics of Kubernetes' own, whose errors must not lose the page
		found := map[string]*dto.MetricFamily{}
		for _, f := range slices.Concat(families, more) {
			name := "kubevirt_" + f.GetName()
			text, known := help[name]
			if known && found[name] == nil {
				found[name] = &dto.MetricFamily{Name: &name, Help: &text, Type: f.Type, Metric: byName(f.Metric)}
			}
		}
		for _, f := range found {
			families = append(families, f)
		}
		slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
		return families, err
	})
}

// byName keeps the label name. Of a queue with priorities the values are added: only its depth has them.
func byName(metrics []*dto.Metric) []*dto.Metric {
	var list []*dto.Metric
	at := map[string]*dto.Metric{}
	for _, m := range metrics {
		i := slices.IndexFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == "name" })
		if i < 0 {
			continue
		}
		label := m.Label[i]
		if other := at[label.GetValue()]; other != nil {
			if other.Gauge != nil && m.Gauge != nil {
				other.Gauge = &dto.Gauge{Value: new(other.Gauge.GetValue() + m.Gauge.GetValue())}
			}
			continue
		}
		one := &dto.Metric{Label: []*dto.LabelPair{label}, Gauge: m.Gauge, Counter: m.Counter, Histogram: m.Histogram}
		at[label.GetValue()] = one
		list = append(list, one)
	}
	return list
}
