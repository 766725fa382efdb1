package monitoring

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"drydock.dev/drydock/internal/metrictable"
	"drydock.dev/drydock/internal/ruletable"
)

var parse = parser.NewParser(parser.Options{})

// set is a set of labels.
type set map[string]bool

func of(names ...string) set {
	s := set{}
	for _, name := range names {
		s[name] = true
	}
	return s
}

func (s set) and(other set) set {
	all := maps.Clone(s)
	maps.Copy(all, other)
	return all
}

// targets are the labels that Prometheus adds to scraped series.
var targets = of("namespace", "pod", "container", "instance", "job")

// served knows the metrics that exist, and their labels.
type served map[string]set

// everything returns all served series: Drydock's metrics, the recording rules, and metrics of other programs.
func everything() (served, error) {
	known := served{}
	for _, m := range metrictable.Served() {
		if m.Type != metrictable.Histogram {
			known[m.Name] = of(m.Labels...).and(targets)
			continue
		}
		known[m.Name+"_bucket"] = of(m.Labels...).and(targets).and(of("le"))
		known[m.Name+"_sum"], known[m.Name+"_count"] = of(m.Labels...).and(targets), of(m.Labels...).and(targets)
	}
	for _, f := range ruletable.Foreigns() {
		known[f.Name] = of(f.Labels...).and(targets)
	}
	for _, r := range ruletable.Recordings() {
		has, err := known.check(r.Expr)
		if err != nil {
			return nil, fmt.Errorf("the rule %s: %w", r.Name, err)
		}
		for name := range r.Labels {
			has[name] = true
		}
		known[r.Name] = has.and(known[r.Name])
	}
	return known, nil
}

// check returns the labels of an expression's values, and an error if the expression names anything that is not served.
func (s served) check(expression string) (set, error) {
	parsed, err := parse.ParseExpr(expression)
	if err != nil {
		return nil, err
	}
	return s.of(parsed)
}

func (s served) of(node parser.Expr) (set, error) {
	switch e := node.(type) {
	case *parser.ParenExpr:
		return s.of(e.Expr)
	case *parser.UnaryExpr:
		return s.of(e.Expr)
	case *parser.StepInvariantExpr:
		return s.of(e.Expr)
	case *parser.SubqueryExpr:
		return s.of(e.Expr)
	case *parser.MatrixSelector:
		return s.of(e.VectorSelector)
	case *parser.VectorSelector:
		return s.selected(e)
	case *parser.AggregateExpr:
		return s.aggregated(e)
	case *parser.BinaryExpr:
		return s.joined(e)
	case *parser.Call:
		return s.called(e)
	}
	return set{}, nil // a number or a text
}

func (s served) selected(e *parser.VectorSelector) (set, error) {
	has, known := s[e.Name]
	if !known {
		return nil, fmt.Errorf("the metric %q is not served", e.Name)
	}
	for _, matcher := range e.LabelMatchers {
		if matcher.Name != model.MetricNameLabel && !has[matcher.Name] {
			return nil, fmt.Errorf("the metric %s has no label %s", e.Name, matcher.Name)
		}
	}
	return has, nil
}

func (s served) aggregated(e *parser.AggregateExpr) (set, error) {
	has, err := s.of(e.Expr)
	if err != nil {
		return nil, err
	}
	if err := within(e.Grouping, has, e.Expr); err != nil {
		return nil, err
	}
	switch {
	case e.Op == parser.TOPK || e.Op == parser.BOTTOMK:
		return has, nil
	case e.Without:
		left := maps.Clone(has)
		maps.DeleteFunc(left, func(name string, _ bool) bool { return slices.Contains(e.Grouping, name) })
		return left, nil
	}
	return of(e.Grouping...), nil
}

func within(names []string, has set, expr parser.Expr) error {
	for _, name := range names {
		if !has[name] {
			return fmt.Errorf("there is no label %s in %s", name, expr)
		}
	}
	return nil
}

func (s served) joined(e *parser.BinaryExpr) (set, error) {
	left, err := s.of(e.LHS)
	if err != nil {
		return nil, err
	}
	right, err := s.of(e.RHS)
	if err != nil {
		return nil, err
	}
	match := e.VectorMatching
	if match == nil { // one side is a number
		return left.and(right), nil
	}
	if match.On {
		if err := within(match.MatchingLabels, left, e.LHS); err != nil {
			return nil, err
		}
		if err := within(match.MatchingLabels, right, e.RHS); err != nil {
			return nil, err
		}
	}
	switch match.Card {
	case parser.CardManyToOne:
		return left.and(of(match.Include...)), within(match.Include, right, e.RHS)
	case parser.CardOneToMany:
		return right.and(of(match.Include...)), within(match.Include, left, e.LHS)
	}
	if e.Op == parser.LOR {
		return left.and(right), nil
	}
	return left, nil
}

func (s served) called(e *parser.Call) (set, error) {
	has := set{}
	for _, argument := range e.Args {
		more, err := s.of(argument)
		if err != nil {
			return nil, err
		}
		has = has.and(more)
	}
	if e.Func.Name != "label_replace" {
		return has, nil
	}
	text := func(i int) string { return strings.Trim(e.Args[i].String(), `"`) }
	if err := within([]string{text(3)}, has, e.Args[0]); err != nil {
		return nil, err
	}
	return has.and(of(text(1))), nil
}
