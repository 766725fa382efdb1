package processmetrics

import (
	"errors"
	"slices"
	"strings"
	"sync"

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
	return queuesOf(from, &kubernetes{
		Gatherer: legacyregistry.DefaultGatherer, Registerer: legacyregistry.Registerer(), queues: prometheus.NewRegistry(),
	})
}

func queuesOf(from prometheus.Gatherer, other *kubernetes) prometheus.Gatherer {
	help := map[string]string{}
	for _, name := range metrictable.Names(metrictable.Process) {
		if strings.HasPrefix(name, theirs) {
			help[name] = metrictable.Get(name).Help
		}
	}
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := from.Gather()
		var more []*dto.MetricFamily
		if !slices.ContainsFunc(families, isOfQueue) {
			more = other.gather(len(help))
		}
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

func isOfQueue(f *dto.MetricFamily) bool { return strings.HasPrefix(f.GetName(), ofQueue) }

// kubernetes is Kubernetes' own registry. It has much besides the queues that nobody reads, such as all that Go's runtime
// measures.
type kubernetes struct {
	prometheus.Gatherer
	prometheus.Registerer

	mu sync.Mutex
	// queues has the n metrics of queues that were found in the registry.
	queues *prometheus.Registry
	n      int
}

// gather returns the metrics of queues. It reads the whole registry until it has found as many metrics as there are. Errors
// are lost: they are of other metrics, and must not lose the page.
func (k *kubernetes) gather(all int) []*dto.MetricFamily {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.n < all {
		families, _ := k.Gather()
		for _, f := range families {
			if isOfQueue(f) && k.find(f) {
				k.n++
			}
		}
		return families
	}
	families, _ := k.queues.Gather()
	return families
}

// find keeps the collector of a metric. The registry returns it only to somebody who registers the same one again.
func (k *kubernetes) find(f *dto.MetricFamily) bool {
	same := described{prometheus.NewDesc(f.GetName(), f.GetHelp(), []string{"name"}, nil)}
	err := k.Register(same)
	if err == nil {
		k.Unregister(same)
		return false
	}
	var is prometheus.AlreadyRegisteredError
	return errors.As(err, &is) && k.queues.Register(is.ExistingCollector) == nil
}

// described is a collector without metrics.
type described struct{ desc *prometheus.Desc }

func (d described) Describe(out chan<- *prometheus.Desc) { out <- d.desc }
func (d described) Collect(chan<- prometheus.Metric)     {}

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
