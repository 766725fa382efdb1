package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
)

// The verdicts of the list. Those that need a reason have one after a colon.
const (
	verdictPassed = "passed"
	verdictNotRun = "not run"
)

// reasons explain why a spec does not pass:
//
//	feature       it tests a feature that Drydock refuses
//	libvirt       it looks inside libvirt or another part that Drydock does not have
//	environment   this cluster or these guests lack something that it needs
//	decision N    Drydock behaves differently on purpose
//	deviation     Drydock behaves differently and should not
//	unexplained   it failed for an unknown reason
var reasons = []string{"feature", "libvirt", "environment", "decision", "deviation", "unexplained"}

type entry struct{ verdict, name string }

func checkVerdict(verdict string) error {
	if verdict == verdictPassed || verdict == verdictNotRun {
		return nil
	}
	kind, reason, _ := strings.Cut(verdict, ":")
	kind, number, _ := strings.Cut(kind, " ")
	switch {
	case !slices.Contains(reasons, kind):
		return fmt.Errorf("the verdict %q is none: it must be %s, %s, or begin with one of %s", verdict, verdictPassed, verdictNotRun, strings.Join(reasons, ", "))
	case (kind == "decision") != (number != ""):
		return fmt.Errorf("the verdict %q must name a decision by its number, as in `decision 605: …`, or none", verdict)
	case strings.TrimSpace(reason) == "":
		return fmt.Errorf("the verdict %q must have a reason after a colon", verdict)
	}
	return nil
}

// A tab is between verdict and name.
func readList(name string) ([]entry, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading the list of specs: %w", err)
	}
	defer func() { _ = file.Close() }()
	var list []entry
	seen := map[string]bool{}
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		verdict, spec, found := strings.Cut(line, "\t")
		err := checkVerdict(verdict)
		switch {
		case !found:
			err = fmt.Errorf("there is no tab between verdict and name")
		case seen[spec]:
			err = fmt.Errorf("the spec is listed twice")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the list of specs: %s:%d: %w", name, number, err)
		}
		seen[spec] = true
		list = append(list, entry{verdict, spec})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the list of specs: %w", err)
	}
	return list, nil
}

func verdicts(list []entry) map[string]string {
	byName := map[string]string{}
	for _, e := range list {
		byName[e.name] = e.verdict
	}
	return byName
}

func checkNames(list []entry, specs []spec) []string {
	var wrong []string
	listed, known := verdicts(list), map[string]bool{}
	for _, s := range specs {
		known[s.name] = true
		if _, is := listed[s.name]; !is {
			wrong = append(wrong, "not in the list: "+s.name)
		}
	}
	for _, e := range list {
		if !known[e.name] {
			wrong = append(wrong, "in the list, and the suite has no such spec in scope: "+e.name)
		}
	}
	return wrong
}

func checkOutcomes(list []entry, chosen, ran []spec) []string {
	var wrong []string
	listed, done := verdicts(list), map[string]bool{}
	for _, s := range ran {
		if !s.reached() {
			continue
		}
		done[s.name] = true
		passed, verdict := s.state == passedState, listed[s.name]
		switch {
		case passed && verdict != verdictPassed:
			wrong = append(wrong, fmt.Sprintf("passes, and is listed as %q: %s", verdict, s.name))
		case !passed && (verdict == verdictPassed || verdict == verdictNotRun):
			wrong = append(wrong, fmt.Sprintf("%s (%s), and is listed as %q: %s", s.state, s.failure, verdict, s.name))
		}
	}
	for _, s := range chosen {
		if !done[s.name] {
			wrong = append(wrong, "was to run, and did not: "+s.name)
		}
	}
	return wrong
}

// merge returns a list of the suite's specs, sorted by group and name, with the outcomes of those that ran. The written
// reason of a spec that does not pass stays.
func merge(list []entry, specs, ran []spec) []entry {
	listed := verdicts(list)
	for _, s := range ran {
		verdict := listed[s.name]
		switch {
		case !s.reached():
		case s.state == passedState:
			listed[s.name] = verdictPassed
		case verdict == "" || verdict == verdictPassed || verdict == verdictNotRun:
			failure := s.failure
			if runes := []rune(failure); len(runes) > most {
				failure = string(runes[:most]) + "…"
			}
			listed[s.name] = "unexplained: " + failure
		}
	}
	ordered := slices.SortedFunc(slices.Values(specs), func(a, b spec) int {
		return cmp.Or(a.group()-b.group(), strings.Compare(a.name, b.name))
	})
	var merged []entry
	for _, s := range ordered {
		verdict := listed[s.name]
		if verdict == "" {
			verdict = verdictNotRun
		}
		merged = append(merged, entry{verdict, s.name})
	}
	return merged
}

// most is the maximum length of a failure's text in the list, in characters.
const most = 120

// listHead is the list's first lines.
const listHead = `# The specs of KubeVirt's functional tests that are in scope, with what came of each: verdict, tab, name. CONTRIBUTING.md, "Tests",
# says how to run them and what the verdicts mean. Each run compares it with what it sees, in both directions.
`

// Each group has a line before it.
func writeList(name string, list []entry, specs []spec) error {
	groupOf := map[string]int{}
	for _, s := range specs {
		groupOf[s.name] = s.group()
	}
	var text strings.Builder
	text.WriteString(listHead)
	last := -1
	for _, e := range list {
		if now := groupOf[e.name]; now != last {
			fmt.Fprintf(&text, "\n# %s\n", groups[now].name)
			last = now
		}
		fmt.Fprintf(&text, "%s\t%s\n", e.verdict, e.name)
	}
	return os.WriteFile(name, []byte(text.String()), 0o644)
}

func tally(list []entry, specs []spec) string {
	kinds := append([]string{verdictPassed}, append(slices.Clone(reasons), verdictNotRun)...)
	counts := make([]map[string]int, len(groups))
	listed := verdicts(list)
	for _, s := range specs {
		kind, _, _ := strings.Cut(listed[s.name], ":")
		if word, _, several := strings.Cut(kind, " "); several && word == "decision" {
			kind = word
		}
		at := s.group()
		if counts[at] == nil {
			counts[at] = map[string]int{}
		}
		counts[at][kind]++
	}
	var text strings.Builder
	for i, g := range groups {
		fmt.Fprintf(&text, "%-14s", g.name)
		for _, kind := range kinds {
			if n := counts[i][kind]; n > 0 {
				fmt.Fprintf(&text, "%5d %s", n, kind)
			}
		}
		text.WriteByte('\n')
	}
	return text.String()
}
