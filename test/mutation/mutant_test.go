package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const mutated = `package rule

type box[T any] struct{}

func first(a, b, c bool) bool {
	return a && b &&
		c
}

func (x *box[T]) second(a, b, c bool, n int) bool {
	if n <= 3 {
		return a || b && c
	}
	n <<= 2
	return (a || b) && c
}

const (
	limit = 2 * 3
	other = -1
)
`

func TestAMutantIsToldByTheWordsOfTheSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rule.go")
	if err := os.WriteFile(path, []byte(mutated), 0o644); err != nil {
		t.Fatal(err)
	}
	source, err := parseSource(path)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		line, at, kind string
		want           mutant
	}{
		"what binds weaker is put in parentheses, over lines": {"return a && b &&", "&& b", "INVERT_LOGICAL",
			mutant{Func: "first", Line: "return a && b && c", Becomes: "return (a || b) && c"}},
		"the outermost operator": {"return a && b &&", "&&\n", "INVERT_LOGICAL",
			mutant{Func: "first", Line: "return a && b && c", Becomes: "return a && b || c"}},
		"what binds as strongly on the right": {"return a || b", "|| b", "INVERT_LOGICAL",
			mutant{Func: "box.second", Line: "return a || b && c", Becomes: "return a && (b && c)"}},
		"parentheses of the source": {"return (a", "|| b", "INVERT_LOGICAL",
			mutant{Func: "box.second", Line: "return (a || b) && c", Becomes: "return (a && b) && c"}},
		"the longest operator": {"if n", "<= 3", "CONDITIONALS_BOUNDARY",
			mutant{Func: "box.second", Line: "if n <= 3 {", Becomes: "if n < 3 {"}},
		"an assignment": {"n <<=", "<<= 2", "REMOVE_SELF_ASSIGNMENTS",
			mutant{Func: "box.second", Line: "n <<= 2", Becomes: "n = 2"}},
		"a declaration": {"limit", "* 3", "ARITHMETIC_BASE",
			mutant{Func: "limit", Line: "limit = 2 * 3", Becomes: "limit = 2 / 3"}},
		"a sign": {"other", "-1", "INVERT_NEGATIVES",
			mutant{Func: "other", Line: "other = -1", Becomes: "other = +1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			begin := strings.Index(mutated, "\t"+test.line) + 1
			offset := begin + strings.Index(mutated[begin:], test.at)
			line := 1 + strings.Count(mutated[:offset], "\n")
			column := offset - strings.LastIndex(mutated[:offset], "\n")
			got, err := source.mutant(gremlinsMutation{Type: test.kind, Line: line, Column: column})
			if err != nil || got != test.want {
				t.Errorf("got  %+v (%v)\nwant %+v", got, err, test.want)
			}
		})
	}
	for name, m := range map[string]gremlinsMutation{
		"a line that is not there":        {Type: "INVERT_LOGICAL", Line: 99, Column: 1},
		"an operator that is not there":   {Type: "INVERT_LOGICAL", Line: 1, Column: 1},
		"a mutator that is not known yet": {Type: "SWAP_ARGUMENTS", Line: 6, Column: 11},
	} {
		if got, err := source.mutant(m); err == nil {
			t.Errorf("%s: no error but %+v", name, got)
		}
	}
}
