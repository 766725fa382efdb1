package monitoring

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"drydock.dev/drydock/internal/ruletable"
)

// prometheus has series, evaluates the table's rules, and knows which alerts fire. It does with them what a Prometheus does, in
// a few lines: all of it would need the libraries of every cloud.
type prometheus struct {
	t      *testing.T
	engine *promql.Engine
	now    time.Time
	step   time.Duration
	series map[string]*series
	// named are the series of a metric, in the order in which they came.
	named map[string][]*series
	// made are the series that a rule had in the last evaluation.
	made map[int]set
	// active is since when an alert with these labels is.
	active map[string]time.Time
	firing map[string]labels.Labels
}

type series struct {
	labels  labels.Labels
	samples []chunks.Sample
}

type sample struct {
	at time.Time
	v  float64
}

func (s sample) T() int64                      { return s.at.UnixMilli() }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

func newPrometheus(t *testing.T, step time.Duration) *prometheus {
	return &prometheus{
		t: t, step: step, now: time.Unix(0, 0), series: map[string]*series{}, named: map[string][]*series{}, made: map[int]set{}, active: map[string]time.Time{}, firing: map[string]labels.Labels{},
		engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Hour, LookbackDelta: 5 * time.Minute, Parser: parse}),
	}
}

// Querier implements storage.Queryable.
func (p *prometheus) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found, name := &found{}, ""
		for _, m := range matchers {
			if m.Name == model.MetricNameLabel {
				name = m.Value
			}
		}
		for _, s := range p.named[name] {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
				found.all = append(found.all, storage.NewListSeries(s.labels, s.samples))
			}
		}
		return found
	}}, nil
}

// found implements storage.SeriesSet.
type found struct {
	all []*storage.SeriesEntry
	at  int
}

func (f *found) Next() bool                        { f.at++; return f.at <= len(f.all) }
func (f *found) At() storage.Series                { return f.all[f.at-1] }
func (f *found) Err() error                        { return nil }
func (f *found) Warnings() annotations.Annotations { return nil }

// clone returns a Prometheus with the same past.
func (p *prometheus) clone(t *testing.T) *prometheus {
	c := newPrometheus(t, p.step)
	c.now, c.active, c.made = p.now, maps.Clone(p.active), maps.Clone(p.made)
	for name, all := range p.named {
		for _, s := range all {
			copied := &series{labels: s.labels, samples: slices.Clip(s.samples)}
			c.series[s.labels.String()] = copied
			c.named[name] = append(c.named[name], copied)
		}
	}
	return c
}

func (p *prometheus) put(key string, l labels.Labels, v float64) {
	if p.series[key] == nil {
		s := &series{labels: l}
		p.series[key] = s
		p.named[l.Get(model.MetricNameLabel)] = append(p.named[l.Get(model.MetricNameLabel)], s)
	}
	p.series[key].samples = append(p.series[key].samples, sample{p.now, v})
}

// scraped is the series of a scrape: a series that it lacks ends.
func (p *prometheus) scraped(state state) {
	for key, s := range p.series {
		if _, there := state[key]; !there && !p.recorded(key) && !value.IsStaleNaN(s.samples[len(s.samples)-1].F()) {
			p.put(key, s.labels, math.Float64frombits(value.StaleNaN))
		}
	}
	for key, s := range state {
		p.put(key, s.labels, s.value)
	}
}

func (p *prometheus) recorded(key string) bool {
	for _, of := range p.made {
		if of[key] {
			return true
		}
	}
	return false
}

func (p *prometheus) query(expr string) promql.Vector {
	p.t.Helper()
	query, err := p.engine.NewInstantQuery(context.Background(), p, nil, expr, p.now)
	if err != nil {
		p.t.Fatalf("%s: %v", expr, err)
	}
	defer query.Close()
	vector, err := query.Exec(context.Background()).Vector()
	if err != nil {
		p.t.Fatalf("%s: %v", expr, err)
	}
	return slices.Clone(vector)
}

// evaluate computes all rules once.
func (p *prometheus) evaluate() {
	p.t.Helper()
	for i, rule := range ruletable.Recordings() {
		made := set{}
		for _, s := range p.query(rule.Expr) {
			b := labels.NewBuilder(s.Metric).Set(model.MetricNameLabel, rule.Name)
			for name, value := range rule.Labels {
				b.Set(name, value)
			}
			key := b.Labels().String()
			p.put(key, b.Labels(), s.F)
			made[key] = true
		}
		for key := range p.made[i] {
			if !made[key] {
				p.put(key, p.series[key].labels, math.Float64frombits(value.StaleNaN))
			}
		}
		p.made[i] = made
	}
	seen := set{}
	clear(p.firing)
	for _, alert := range ruletable.Alerts() {
		for _, s := range p.query(alert.Expr) {
			key := alert.Name + "/" + string(alert.Severity) + " " + s.Metric.String()
			seen[key] = true
			if _, is := p.active[key]; !is {
				p.active[key] = p.now
			}
			if p.now.Sub(p.active[key]) >= alert.For {
				p.firing[key] = s.Metric
			}
		}
	}
	maps.DeleteFunc(p.active, func(key string, _ time.Time) bool { return !seen[key] })
}

// names returns the alerts that fire, as NAME/SEVERITY.
func (p *prometheus) names() []string {
	all := set{}
	for key := range p.firing {
		name, _, _ := strings.Cut(key, " ")
		all[name] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// state is what a cluster serves, by the series' text.
type state map[string]*gauge

func (s state) clone() state {
	c := state{}
	for key, g := range s {
		copied := *g
		c[key] = &copied
	}
	return c
}

type gauge struct {
	labels labels.Labels
	value  float64
	// each is a counter's gain in a second.
	each float64
}

// change applies lines of a series and its value: a number, "+N" for a counter that gains N in a second, or "gone".
func (s state) change(lines string) error {
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		end := strings.LastIndex(line, " ")
		metric, err := parse.ParseMetric(line[:end])
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		key, word := metric.String(), line[end+1:]
		if word == "gone" {
			if s[key] == nil {
				return fmt.Errorf("%s: it was not there", line)
			}
			delete(s, key)
			continue
		}
		if s[key] == nil {
			s[key] = &gauge{labels: metric}
		}
		s[key].each = 0
		into := &s[key].value
		if strings.HasPrefix(word, "+") {
			into = &s[key].each
		}
		if _, err := fmt.Sscan(word, into); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	return nil
}

// run lets time pass.
func (p *prometheus) run(s state, d time.Duration, each func()) {
	p.t.Helper()
	for end := p.now.Add(d); p.now.Before(end); {
		p.now = p.now.Add(p.step)
		for _, g := range s {
			g.value += g.each * p.step.Seconds()
		}
		p.scraped(s)
		p.evaluate()
		each()
	}
}
