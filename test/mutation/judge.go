package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// threshold is the percentage of compiling mutants that must be killed, in each package and in
// total. An explained mutant counts as a survivor.
const threshold = 95

// explanationsFile lists a package's mutants that no test can kill, with reasons.
const explanationsFile = "testdata/mutants.yaml"

type explanation struct {
	mutant
	Reason string `json:"reason"`
}

type result struct {
	pkg                     string
	killed, hung, notViable int
	survivors               []mutant
	explained               []explanation
	took                    time.Duration
}

func readExplanations(file string) ([]explanation, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading why mutants survive: %w", err)
	}
	var list []explanation
	if err := yaml.UnmarshalStrict(text, &list); err != nil {
		return nil, fmt.Errorf("reading why mutants survive from %s: %w", file, err)
	}
	for _, e := range list {
		if e.Reason == "" || e.Line == "" || e.Becomes == "" {
			return nil, fmt.Errorf("%s: the entry of %q lacks a line, what it becomes, or a reason", file, e.Line)
		}
	}
	return list, nil
}

// Equal lines of one function count as one.
func (m mutant) same(o mutant) bool {
	return m.Func == o.Func && m.Line == o.Line && m.Becomes == o.Becomes
}

func (r result) unexplained() []mutant {
	return slices.DeleteFunc(slices.Clone(r.survivors), func(m mutant) bool {
		return slices.ContainsFunc(r.explained, func(e explanation) bool { return e.same(m) })
	})
}

// outdated returns the explanations of mutants that did not survive.
func (r result) outdated() []explanation {
	return slices.DeleteFunc(slices.Clone(r.explained), func(e explanation) bool {
		return slices.ContainsFunc(r.survivors, e.same)
	})
}

func (r result) compiled() int { return r.killed + len(r.survivors) }

func (r result) percent() string {
	if r.compiled() == 0 {
		return "–"
	}
	// Round down: 94.96 is not 95.
	permille := 1000 * r.killed / r.compiled()
	return fmt.Sprintf("%d.%d", permille/10, permille%10)
}

func total(results []result) result {
	all := result{pkg: "all"}
	for _, r := range results {
		all.killed += r.killed
		all.hung += r.hung
		all.notViable += r.notViable
		all.survivors = append(all.survivors, r.survivors...)
		all.took += r.took
	}
	return all
}

func judge(results []result) error {
	var problems []error
	for _, r := range append(slices.Clone(results), total(results)) {
		if 100*r.killed < threshold*r.compiled() {
			problems = append(problems, fmt.Errorf("%s: %s %% of the mutants that compile are killed, %d %% must be", r.pkg, r.percent(), threshold))
		}
	}
	for _, r := range results {
		for _, m := range r.unexplained() {
			problems = append(problems, fmt.Errorf("%s: no test fails when `%s` becomes `%s`: write one, or say in %s why none can",
				m.position, m.Line, m.Becomes, explanationsFile))
		}
		for _, e := range r.outdated() {
			problems = append(problems, fmt.Errorf("%s: %s explains why `%s` survives in %s, but it does not: remove the entry",
				r.pkg, explanationsFile, e.Becomes, e.Func))
		}
	}
	return errors.Join(problems...)
}

func (r result) details() string {
	text := fmt.Sprintf("%s: %s %% of %d mutants killed in %s\n", r.pkg, r.percent(), r.compiled(), r.took.Round(time.Second))
	for _, m := range r.unexplained() {
		text += fmt.Sprintf("  %s: %s: `%s` → `%s`\n", m.position, m.Func, m.Line, m.Becomes)
	}
	return text
}

// table returns the table of docs/mutation.md.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("| package | mutants | do not compile | killed | of these hung | survived, explained | survived | killed, % |\n")
	b.WriteString("|---|--:|--:|--:|--:|--:|--:|--:|\n")
	explained := 0
	row := func(r result, explained int) {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d | %s |\n", r.pkg, r.compiled()+r.notViable, r.notViable,
			r.killed, r.hung, explained, len(r.survivors)-explained, r.percent())
	}
	for _, r := range results {
		known := len(r.survivors) - len(r.unexplained())
		explained += known
		row(r, known)
	}
	row(total(results), explained)
	return b.String()
}
