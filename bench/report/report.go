// Package report keeps measurements: raw samples, medians and 95th percentiles, a table for people and two files
// for programs.
//
// It owns the format of bench/results.json, whose names other tools rely on. It must not measure anything.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// Metric summarizes a figure's samples.
type Metric struct {
	Median float64 `json:"median"`
	P95    float64 `json:"p95"`
	Unit   string  `json:"unit"`
	N      int     `json:"n"`
}

// Machine is the machine of the measurements.
type Machine struct {
	CPU       string `json:"cpu"`
	CPUs      int    `json:"cpus"`
	MemoryMiB int    `json:"memoryMiB"`
	Kernel    string `json:"kernel"`
	// KVM means that guests use KVM; nil without a cluster.
	KVM *bool `json:"kvm,omitempty"`
	// Load is of the minute before the run. Figures from a busy machine are worth little.
	Load float64 `json:"load"`
}

// Report collects samples. It must be used by one goroutine.
type Report struct {
	Machine  Machine
	Versions map[string]string
	samples  map[string][]float64
	units    map[string]string
	out      io.Writer
}

// New returns a report that prints to out.
func New(out io.Writer) *Report {
	return &Report{Versions: map[string]string{}, samples: map[string][]float64{}, units: map[string]string{}, out: out}
}

// Add adds samples to a figure.
func (r *Report) Add(name, unit string, samples ...float64) {
	r.samples[name] = append(r.samples[name], samples...)
	r.units[name] = unit
}

// Logf prints progress.
func (r *Report) Logf(format string, args ...any) {
	fmt.Fprintf(r.out, format+"\n", args...)
}

// Metrics summarizes all samples.
func (r *Report) Metrics() map[string]Metric {
	out := map[string]Metric{}
	for name, samples := range r.samples {
		out[name] = Metric{
			Median: round(quantile(samples, 0.5)), P95: round(quantile(samples, 0.95)),
			Unit: r.units[name], N: len(samples),
		}
	}
	return out
}

// The result is between the two nearest samples.
func quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// Table prints this run's figures.
func (r *Report) Table() error {
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nFIGURE\tMEDIAN\tP95\tUNIT\tN\tTARGET\n")
	metrics := r.Metrics()
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		m := metrics[name]
		fmt.Fprintf(w, "%s\t%g\t%g\t%s\t%d\t%s\n", name, m.Median, m.P95, m.Unit, m.N, verdict(name, m.Median))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	return nil
}

type file struct {
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Metrics  map[string]Metric `json:"metrics"`
}

// Write writes the results to path and the raw samples beside it. It keeps an earlier run's other
// figures if they are from the same machine.
func (r *Report) Write(path string) error {
	results := file{Metrics: map[string]Metric{}}
	raw := map[string][]float64{}
	rawPath := strings.TrimSuffix(path, ".json") + ".raw.json"
	if err := errors.Join(read(path, &results), read(rawPath, &raw)); err != nil {
		return err
	}
	if !sameMachine(results.Machine, r.Machine) {
		results, raw = file{Metrics: map[string]Metric{}}, map[string][]float64{}
	}
	// A run without a cluster does not know whether guests use KVM.
	if kvm := results.Machine.KVM; r.Machine.KVM == nil {
		r.Machine.KVM = kvm
	}
	if results.Versions == nil {
		results.Versions = map[string]string{}
	}
	results.Machine = r.Machine
	maps.Copy(results.Versions, r.Versions)
	maps.Copy(results.Metrics, r.Metrics())
	maps.Copy(raw, r.samples)
	return errors.Join(write(path, results), write(rawPath, raw))
}

func sameMachine(a, b Machine) bool {
	sameKVM := a.KVM == nil || b.KVM == nil || *a.KVM == *b.KVM
	a.Load, b.Load, a.KVM, b.KVM = 0, 0, nil, nil
	return a == b && sameKVM
}

func read(path string, into any) error {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the last results: %w", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading the last results in %s (remove it to begin anew): %w", path, err)
	}
	return nil
}

func write(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}
