package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
)

// work is what a step does. What it says goes to the writer and is shown when it
// fails. The process that it ran, if any, tells the time that it cost.
type work func(ctx context.Context, out io.Writer) (*os.ProcessState, error)

// step is one thing to do.
type step struct {
	name string
	// needs names the steps that must be done before.
	needs []string
	// compiles is whether it uses all cores to compile, which one step does at a
	// time.
	compiles bool
	do       work
}

// state is how far a step is.
//
//	waiting ──next──> running ──succeeds──> done
type state int

const (
	waiting state = iota
	running
	done
)

// next returns the steps that start now, given how far each is: those whose needs
// are done, but only one that compiles.
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

// check refuses steps that would never all be done.
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
