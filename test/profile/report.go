package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"drydock.dev/drydock/test/namespace"
)

// smallest is the smallest share of the CPU time that the report shows.
const smallest = 0.003

const shown = 10

// sums are CPU seconds of a whole run.
type sums struct {
	parts    map[string]float64
	packages map[string]float64
	guests   map[use]float64
	tests    map[*test]*cost
	// busy includes processes that were not observed.
	busy float64
}

type cost struct {
	// guests is the time of the test's guests; shared is its share of its cluster's and package's time.
	guests, shared float64
}

func (c *cost) all() float64 { return c.guests + c.shared }

func report(folder string, out io.Writer) error {
	tests, err := readTests(folder)
	if err != nil {
		return err
	}
	s := sums{parts: map[string]float64{}, packages: map[string]float64{}, guests: map[use]float64{}, tests: map[*test]*cost{}}
	if err := readSamples(folder, func(each sample) { s.add(each, tests) }); err != nil {
		return err
	}
	s.print(out)
	return nil
}

// readSamples calls take with each sample, with Busy as the difference from the previous one.
func readSamples(folder string, take func(sample)) error {
	file, err := os.Open(samplesFile(folder))
	if err != nil {
		return fmt.Errorf("reading samples: %w", err)
	}
	defer func() { _ = file.Close() }()
	before := 0.0
	for decoder := json.NewDecoder(file); ; {
		var s sample
		err := decoder.Decode(&s)
		// A truncated last line follows complete ones.
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading samples: %w", err)
		}
		busy := s.Busy
		if s.Busy -= before; before == 0 {
			s.Busy = 0
		}
		before = busy
		take(s)
	}
}

func (s *sums) add(each sample, tests []*test) {
	s.busy += each.Busy
	running := map[string][]*test{}
	for _, t := range tests {
		if t.ran(each.Time) {
			running[t.cluster] = append(running[t.cluster], t)
		}
	}
	for _, e := range each.Used {
		s.parts[e.Part] += e.Seconds
		if e.Package != "" {
			s.packages[e.Package] += e.Seconds
		}
		if e.Part == partGuest {
			s.guests[e.use] += e.Seconds
		}
		s.share(e, running[e.Cluster])
	}
}

// share adds the time to the running tests: a guest's to its own test, everything else in equal parts.
func (s *sums) share(e entry, running []*test) {
	for _, t := range running {
		if e.Guest != "" && strings.HasPrefix(e.Guest, namespace.Prefix(t.name)) {
			s.cost(t).guests += e.Seconds
			return
		}
	}
	for _, t := range running {
		s.cost(t).shared += e.Seconds / float64(len(running))
	}
}

func (s *sums) cost(t *test) *cost {
	if s.tests[t] == nil {
		s.tests[t] = &cost{}
	}
	return s.tests[t]
}

func (s *sums) print(out io.Writer) {
	fmt.Fprintf(out, "CPU time, in seconds: %.0f of all processes; the CPUs computed %.0f\n", total(s.parts), s.busy)
	little := 0.0
	for _, part := range descending(s.parts) {
		share := s.parts[part] / total(s.parts)
		if share < smallest {
			little += s.parts[part]
			continue
		}
		fmt.Fprintf(out, "%9.0f  %4.1f %%  %s\n", s.parts[part], 100*share, part)
	}
	fmt.Fprintf(out, "%9.0f  %4.1f %%  others, of less than %.1f %% each\n", little, 100*little/total(s.parts), 100*smallest)
	if len(s.guests) > 0 {
		each := slices.Sorted(maps.Values(s.guests))
		fmt.Fprintf(out, "%d guests were started: %.1f s each in the median, %.1f the most expensive tenth\n",
			len(each), each[len(each)/2], each[len(each)*9/10])
	}
	if len(s.packages) > 0 {
		fmt.Fprintln(out, "packages whose tests, with what they start, used most")
		for _, folder := range first(descending(s.packages)) {
			fmt.Fprintf(out, "%9.0f  %s\n", s.packages[folder], shortened(folder))
		}
	}
	if len(s.tests) == 0 {
		return
	}
	all := slices.SortedFunc(maps.Keys(s.tests), func(a, b *test) int { return cmp.Compare(s.tests[b].all(), s.tests[a].all()) })
	fmt.Fprintln(out, "tests on clusters that used most; of it their guests; how long they ran")
	for _, t := range first(all) {
		fmt.Fprintf(out, "%9.0f %6.0f %6.0f  %s\n", s.tests[t].all(), s.tests[t].guests, t.took().Seconds(), t.name)
	}
}

func first[T any](all []T) []T { return all[:min(len(all), shown)] }

func descending(of map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b))
	})
}

func total(of map[string]float64) float64 {
	sum := 0.0
	for _, seconds := range of {
		sum += seconds
	}
	return sum
}

func shortened(folder string) string {
	here, err := os.Getwd()
	if err != nil {
		return folder
	}
	if rel, err := filepath.Rel(here, folder); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return folder
}
