package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

type test struct {
	name, cluster string
	// spans are the times when it ran. It is paused while it waits for parallel tests.
	spans []span
}

type span struct{ from, to time.Time }

func (t *test) ran(at time.Time) bool {
	for _, s := range t.spans {
		if !at.Before(s.from) && (s.to.IsZero() || !at.After(s.to)) {
			return true
		}
	}
	return false
}

func (t *test) took() time.Duration {
	var sum time.Duration
	for _, s := range t.spans {
		if !s.to.IsZero() {
			sum += s.to.Sub(s.from)
		}
	}
	return sum
}

type event struct {
	Time                  time.Time
	Action, Package, Test string
}

// eventsPattern matches the output files of `go test -json`. The cluster's name is between tests- and the
// last hyphen.
const eventsPattern = "tests-*-*.json"

// Subtests count for their test.
func readTests(folder string) ([]*test, error) {
	files, err := filepath.Glob(filepath.Join(folder, eventsPattern))
	if err != nil {
		return nil, fmt.Errorf("looking for what the tests told: %w", err)
	}
	var all []*test
	for _, file := range files {
		name := strings.TrimPrefix(filepath.Base(file), "tests-")
		tests, err := readEvents(file, name[:strings.LastIndex(name, "-")])
		if err != nil {
			return nil, err
		}
		all = append(all, tests...)
	}
	return all, nil
}

func readEvents(file, cluster string) ([]*test, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading what the tests told: %w", err)
	}
	defer func() { _ = opened.Close() }()
	var tests []*test
	known := map[string]*test{}
	for decoder := json.NewDecoder(opened); ; {
		var e event
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return tests, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading what the tests told in %s: %w", file, err)
		}
		if e.Test == "" || strings.Contains(e.Test, "/") {
			continue
		}
		t := known[e.Package+" "+e.Test]
		if t == nil {
			t = &test{name: e.Test, cluster: cluster}
			known[e.Package+" "+e.Test] = t
			tests = append(tests, t)
		}
		switch e.Action {
		case "run", "cont":
			t.spans = append(t.spans, span{from: e.Time})
		case "pause", "pass", "fail", "skip":
			if last := len(t.spans) - 1; last >= 0 && t.spans[last].to.IsZero() {
				t.spans[last].to = e.Time
			}
		}
	}
}
