package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
)

// work does a step and writes its output to the writer, which is shown on failure. The state of its
// process, if any, has the CPU time.
type work func(ctx context.Context, out io.Writer) (*os.ProcessState, error)

type step struct {
	name string
	// needs names the steps that must finish first.
	needs []string
	// compiles marks a step that uses all cores. Only one such step runs at a time.
	compiles bool
	do       work
}

// state is the progress of a step.
//
//	waiting ──next──> running ──succeeds──> done
type state int

const (
	waiting state = iota
	running
	done
)

// next returns the steps that start now: their needs are done, and only one of them compiles.
func next(steps []step, states map[string]state) []step {
	compiling := slices.ContainsFunc(steps, func(s step) bool { return s.compiles && states[s.name] == running })
	var start []step
	for _, s := range steps {
		blocked := slices.ContainsFunc(s.needs, func(need string) bool { return states[need] != done })
		if states[s.name] != waiting || blocked || s.compiles && compiling {
			continue
		}
		compiling = compiling || s.compiles
		start = append(start, s)
	}
	return start
}

// check returns an error for steps that could never all finish.
func check(steps []step) error {
	states := map[string]state{}
	for _, s := range steps {
		if _, twice := states[s.name]; twice {
			return fmt.Errorf("there are two steps %q", s.name)
		}
		states[s.name] = waiting
	}
	left := len(steps)
	for left > 0 {
		start := next(steps, states)
		if len(start) == 0 {
			return fmt.Errorf("%d steps need what no step does, or each other", left)
		}
		for _, s := range start {
			states[s.name] = done
		}
		left -= len(start)
	}
	return nil
}
