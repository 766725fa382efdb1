package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func survivor(line string) mutant {
	return mutant{Func: "Decide", Line: line, Becomes: "not " + line, position: "internal/rules/x/x.go:1:2"}
}

func TestWhatIsGoodEnough(t *testing.T) {
	explained := explanation{mutant: mutant{Func: "Decide", Line: "a < b", Becomes: "not a < b"}, Reason: "equal durations are the same"}
	elsewhere := explained
	elsewhere.Func = "Other"
	tests := map[string]struct {
		results []result
		want    []string
	}{
		"all are killed":           {[]result{{pkg: "x", killed: 3, notViable: 2}}, nil},
		"nothing can be mutated":   {[]result{{pkg: "x"}}, nil},
		"19 of 20, one explained":  {[]result{{pkg: "x", killed: 19, survivors: []mutant{survivor("a < b")}, explained: []explanation{explained}}}, nil},
		"19 of 20, one is open":    {[]result{{pkg: "x", killed: 19, survivors: []mutant{survivor("a < b")}}}, []string{"x.go:1:2: no test fails when `a < b` becomes `not a < b`"}},
		"explained for other code": {[]result{{pkg: "x", killed: 19, survivors: []mutant{survivor("a < b")}, explained: []explanation{elsewhere}}}, []string{"no test fails", "it does not: remove the entry"}},
		"explained and killed":     {[]result{{pkg: "x", killed: 20, explained: []explanation{explained}}}, []string{"it does not: remove the entry"}},
		"one equal line in two places is explained once": {[]result{{pkg: "x", killed: 38,
			survivors: []mutant{survivor("a < b"), survivor("a < b")}, explained: []explanation{explained}}}, nil},
		"18 of 19, though explained": {[]result{{pkg: "x", killed: 18, survivors: []mutant{survivor("a < b")}, explained: []explanation{explained}}},
			[]string{"x: 94.7 % of the mutants that compile are killed, 95 % must be", "all: 94.7 %"}},
		"one package does not make up for another": {[]result{{pkg: "x", killed: 1000}, {pkg: "y", killed: 9,
			survivors: []mutant{survivor("a < b")}, explained: []explanation{explained}}}, []string{"y: 90.0 %"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			if err := judge(test.results); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if !slices.EqualFunc(got, test.want, strings.Contains) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestTheTableAddsUp(t *testing.T) {
	explained := explanation{mutant: mutant{Func: "Decide", Line: "a", Becomes: "not a"}, Reason: "r"}
	got := table([]result{
		{pkg: "x", killed: 18, hung: 1, notViable: 3, survivors: []mutant{survivor("a"), survivor("b")}, explained: []explanation{explained}},
		{pkg: "y", killed: 5},
	})
	for _, want := range []string{"| x | 23 | 3 | 18 | 1 | 1 | 1 | 90.0 |", "| y | 5 | 0 | 5 | 0 | 0 | 0 | 100.0 |", "| all | 28 | 3 | 23 | 1 | 1 | 1 | 92.0 |"} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("the table lacks the row %q:\n%s", want, got)
		}
	}
}

func TestExplanationsAreRead(t *testing.T) {
	const whole = "- func: Decide\n  line: a < b\n  becomes: a <= b\n  reason: equal is the same\n"
	tests := map[string]struct {
		text, fails string
	}{
		"an entry":                {whole, ""},
		"an entry without reason": {"- line: a\n  becomes: b\n", "lacks"},
		"a word that is unknown":  {whole + "  why: x\n", "unknown field"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "mutants.yaml")
			if err := os.WriteFile(file, []byte(test.text), 0o644); err != nil {
				t.Fatal(err)
			}
			list, err := readExplanations(file)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("error %v, want one with %q", err, test.fails)
				}
				return
			}
			want := explanation{mutant: mutant{Func: "Decide", Line: "a < b", Becomes: "a <= b"}, Reason: "equal is the same"}
			if err != nil || !slices.Equal(list, []explanation{want}) {
				t.Errorf("read %+v (%v), want %+v", list, err, want)
			}
		})
	}
	if list, err := readExplanations(filepath.Join(t.TempDir(), "none")); len(list) > 0 || err != nil {
		t.Errorf("a package without explanations: %v, %v", list, err)
	}
}
