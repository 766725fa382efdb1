// Package metrictable is the table of metrics: which ones each component serves, with type, labels and meaning, and why
// others of KubeVirt's are not served. The components make their metrics of it, and docs/metrics.md is generated from it.
//
// It owns names, types, labels and texts. It must not measure anything.
package metrictable

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Component is a process that serves metrics.
type Component string

// These are the components.
const (
	API        Component = "virt-api"
	Controller Component = "virt-controller"
	Handler    Component = "virt-handler"
	// Process is each of them.
	Process Component = "every component"
)

// Type is Prometheus's type of a metric.
type Type string

// These are the types.
const (
	Gauge     Type = "gauge"
	Counter   Type = "counter"
	Histogram Type = "histogram"
)

// Metric is a metric that Drydock serves.
type Metric struct {
	Name   string
	By     Component
	Type   Type
	Labels []string
	// Help is a sentence.
	Help string
	// Note is for the page only: the source of the value, or a difference from KubeVirt.
	Note string
}

// Missing is a metric of KubeVirt's that Drydock does not serve.
type Missing struct {
	Name string
	// Why is a sentence.
	Why string
	// Later means that nothing prevents the metric.
	Later bool
}

// Served lists all metrics, of KubeVirt's names and of Drydock's own.
func Served() []Metric {
	return slices.Concat(ofHandler, ofMigrationCosts, ofController, ofCluster, ofAPI, ofAll)
}

// NotServed lists the rest of KubeVirt's.
func NotServed() []Missing { return slices.Clone(missing) }

// Names returns the names of a component's metrics, sorted.
func Names(by Component) []string {
	var names []string
	for _, m := range Served() {
		if m.By == by {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Get returns a metric of the table, and panics for another one: names are constants in the code.
func Get(name string) Metric {
	for _, m := range Served() {
		if m.Name == name {
			return m
		}
	}
	panic(fmt.Sprintf("the metric %s is not in the table of metrics", name))
}

// Series makes values of one metric.
type Series struct {
	// Desc is for Describe.
	Desc  *prometheus.Desc
	gauge bool
}

// Of returns the Series of a gauge or counter of the table.
func Of(name string) Series {
	m := Get(name)
	if m.Type == Histogram {
		panic(fmt.Sprintf("the metric %s is a histogram, and has no single value", name))
	}
	return Series{Desc: prometheus.NewDesc(m.Name, m.Help, m.Labels, nil), gauge: m.Type == Gauge}
}

// Labels are values of labels. Several values may share them.
type Labels []*dto.LabelPair

// Labels returns the values of the table's labels, in its order.
func (s Series) Labels(values ...string) Labels { return prometheus.MakeLabelPairs(s.Desc, values) }

// At returns a value for the values of labels.
func (s Series) At(value float64, labels ...string) prometheus.Metric {
	return s.With(value, s.Labels(labels...))
}

// With returns a value for Labels of a metric with the same ones. A constant metric of the client library makes them
// again for each value.
func (s Series) With(value float64, labels Labels) prometheus.Metric {
	return &metric{series: s, value: value, labels: labels}
}

type metric struct {
	series Series
	value  float64
	labels Labels
}

// Desc implements prometheus.Metric.
func (m *metric) Desc() *prometheus.Desc { return m.series.Desc }

// Write implements prometheus.Metric.
func (m *metric) Write(out *dto.Metric) error {
	out.Label = m.labels
	if m.series.gauge {
		out.Gauge = &dto.Gauge{Value: &m.value}
	} else {
		out.Counter = &dto.Counter{Value: &m.value}
	}
	return nil
}
