package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTheListHoldsEachSpecWithAVerdict(t *testing.T) {
	list, err := readList("specs.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Error("the list is empty")
	}
}

func TestVerdictsHaveReasons(t *testing.T) {
	for verdict, right := range map[string]bool{
		"passed": true, "not run": true, "decision 605: exports are not served": true, "environment: no NetworkPolicies": true,
		"": false, "pass": false, "passed: yes": false, "decision: 605": false, "feature 5: exports": false, "feature": false, "feature: ": false,
	} {
		if err := checkVerdict(verdict); (err == nil) != right {
			t.Errorf("%q: %v", verdict, err)
		}
	}
}

func TestAListWithASpecTwiceOrWithoutATabIsRefused(t *testing.T) {
	for _, text := range []string{"passed\ta\nnot run\ta\n", "passed a\n", "good\ta\n"} {
		name := filepath.Join(t.TempDir(), "list")
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readList(name); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestTheListIsComparedInBothDirections(t *testing.T) {
	list := []entry{{"passed", "a"}, {"not run", "b"}, {"feature: exports", "c"}, {"passed", "gone"}}
	if got := checkNames(list, []spec{{name: "a"}, {name: "b"}, {name: "c"}, {name: "new"}}); !slices.Equal(got, []string{
		"not in the list: new", "in the list, and the suite has no such spec in scope: gone",
	}) {
		t.Errorf("names: got %q", got)
	}

	chosen := []spec{{name: "a"}}
	for _, test := range []struct {
		given  string
		chosen []spec
		ran    spec
		want   []string
	}{
		{"one that passes is listed so", chosen, spec{name: "a", state: "passed"}, nil},
		{"one that fails is listed so", nil, spec{name: "c", state: "failed"}, nil},
		{"one that skips itself is listed so", nil, spec{name: "c", state: "skipped", failure: "no class"}, nil},
		{"one that was not chosen", nil, spec{name: "a", state: "skipped"}, nil},
		{"a passed one fails", chosen, spec{name: "a", state: "failed", failure: "why"}, []string{`failed (why), and is listed as "passed": a`}},
		{"a passed one skips itself", chosen, spec{name: "a", state: "skipped", failure: "why"}, []string{`skipped (why), and is listed as "passed": a`}},
		{"one that had not run fails", nil, spec{name: "b", state: "failed", failure: "why"}, []string{`failed (why), and is listed as "not run": b`}},
		{"the end of the run broke it off", nil, spec{name: "a", state: "interrupted", failure: "Interrupted by User"}, nil},
		{"the run's bound broke a chosen one off", chosen, spec{name: "a", state: "timedout", failure: "why"}, []string{"was to run, and did not: a"}},
		{"one that had not run passes", nil, spec{name: "b", state: "passed"}, []string{`passes, and is listed as "not run": b`}},
		{"one that can't passes", nil, spec{name: "c", state: "passed"}, []string{`passes, and is listed as "feature: exports": c`}},
		{"one that nobody lists passes", nil, spec{name: "new", state: "passed"}, []string{`passes, and is listed as "": new`}},
		{"the run ended before a chosen one", chosen, spec{name: "a", state: "skipped"}, []string{"was to run, and did not: a"}},
	} {
		if got := checkOutcomes(list, test.chosen, []spec{test.ran}); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.given, got, test.want)
		}
	}
}

func TestWhatIsSeenGoesIntoTheList(t *testing.T) {
	list := []entry{{"passed", "a"}, {"not run", "b"}, {"feature: exports", "c"}, {"deviation: a label is missing", "d"}, {"passed", "gone"}}
	specs := []spec{{name: "new"}, {name: "d"}, {name: "c"}, {name: "b"}, {name: "a"}, {name: "first", labels: []string{"sig-storage"}}}
	ran := []spec{
		{name: "a", state: "failed", failure: "why"}, {name: "b", state: "passed"},
		{name: "c", state: "failed", failure: "why"}, {name: "d", state: "passed"}, {name: "first", state: "skipped"},
	}
	merged := merge(list, specs, ran)
	want := []entry{{"not run", "first"}, {"unexplained: why", "a"}, {"passed", "b"}, {"feature: exports", "c"}, {"passed", "d"}, {"not run", "new"}}
	if !slices.Equal(merged, want) {
		t.Errorf("got %q, want %q", merged, want)
	}
	name := filepath.Join(t.TempDir(), "list")
	if err := writeList(name, merged, specs); err != nil {
		t.Fatal(err)
	}
	if again, err := readList(name); err != nil || !slices.Equal(again, want) {
		t.Errorf("what was written is read as %q, %v", again, err)
	}
	if got := strings.Fields(tally(merged, specs)); !slices.Equal(got, strings.Fields(
		"storage 1 not run migration instancetype clone network monitoring compute 2 passed 1 feature 1 unexplained 1 not run")) {
		t.Errorf("the tally is %q", got)
	}
}
