package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

type spec struct {
	name string
	// text is the suite's name. Several specs may share it.
	text   string
	labels []string
	// state is ginkgo's; empty in a dry run.
	state string
	// failure is the message's first line.
	failure string
}

// passedState is the state of a passed spec. A spec that skips itself has not passed.
const passedState = "passed"

// A spec that was not chosen is `skipped` like one that skips itself, but only the latter gives a reason; the end
// of the run makes specs `interrupted` or `timedout`.
func (s spec) reached() bool {
	switch s.state {
	case passedState, "failed", "panicked", "aborted":
		return true
	}
	return s.state == "skipped" && s.failure != ""
}

type report []struct {
	SpecReports []struct {
		ContainerHierarchyTexts  []string
		ContainerHierarchyLabels [][]string
		LeafNodeType             string
		LeafNodeLabels           []string
		LeafNodeText             string
		State                    string
		Failure                  struct{ Message string }
	}
	SpecialSuiteFailureReasons []string
}

// The suite may fail as a whole.
func readReport(name string) ([]spec, []string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the suite's report: %w", err)
	}
	var suites report
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, nil, fmt.Errorf("reading the suite's report: %w", err)
	}
	var specs []spec
	var reasons []string
	seen := map[string]int{}
	for _, suite := range suites {
		for _, reason := range suite.SpecialSuiteFailureReasons {
			reasons = append(reasons, oneLine(reason))
		}
		for _, r := range suite.SpecReports {
			failure := typeOfError.ReplaceAllString(oneLine(r.Failure.Message), "")
			if r.LeafNodeType != "It" {
				if r.State != passedState {
					reasons = append(reasons, fmt.Sprintf("%s %s: %s", r.LeafNodeType, r.State, failure))
				}
				continue
			}
			text := strings.Join(append(slices.Clone(r.ContainerHierarchyTexts), r.LeafNodeText), " ")
			found := spec{
				name: oneLine(text), text: text,
				// Specs inherit the labels of their containers.
				labels: append(slices.Concat(r.ContainerHierarchyLabels...), r.LeafNodeLabels...),
				state:  r.State, failure: failure,
			}
			// Specs of the same name are distinguished by their order.
			if seen[found.name]++; seen[found.name] > 1 {
				found.name = fmt.Sprintf("%s #%d", found.name, seen[found.name])
			}
			specs = append(specs, found)
		}
	}
	return specs, reasons, nil
}

// typeOfError matches gomega's prefix of an error, whose address differs in each run.
var typeOfError = regexp.MustCompile(`^Unexpected error: <[^>]*>: `)

// oneLine returns a text without tabs and line ends, which separate the list's fields and lines.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// outOfScope are the labels of specs that Drydock does not aim at, or that this machine can't run.
var outOfScope = []string{
	"Windows", "Sysprep", "GPU", "VGPU", "DRA-GPU", "SRIOV", "SEV", "SEVES", "SEVSNP", "secure-execution", "realtime", "sig-compute-realtime",
	"sig-operator", "Operator", "Upgrade", "requires-dual-stack-cluster", "IPv6", "sig-performance", "requires-s390x", "requires-arm64",
	"requires-cross-arch-emulation", "OpenShift",
}

func (s spec) inScope() bool {
	return !slices.ContainsFunc(s.labels, func(label string) bool { return slices.Contains(outOfScope, label) })
}

// A group can run alone.
type group struct {
	name string
	// words are in the names or labels of its specs.
	words []string
}

// groups are in the order of matching; the last one has all remaining specs.
var groups = []group{
	{"storage", []string{"sig-storage"}},
	{"migration", []string{"sig-compute-migrations"}},
	{"instancetype", []string{"sig-compute-instancetype"}},
	{"clone", []string{"VirtualMachineClone"}},
	{"network", []string{"sig-network"}},
	{"monitoring", []string{"sig-monitoring"}},
	{"compute", []string{""}},
}

func (s spec) group() int {
	return slices.IndexFunc(groups, func(g group) bool {
		return slices.ContainsFunc(g.words, func(word string) bool { return slices.Contains(s.labels, word) || strings.Contains(s.name, word) })
	})
}

func only(specs []spec, wanted func(spec) bool) []spec {
	return slices.DeleteFunc(slices.Clone(specs), func(s spec) bool { return !wanted(s) })
}
