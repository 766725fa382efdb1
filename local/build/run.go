package main

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// grace is the time between SIGTERM and SIGKILL for a command.
const grace = 10 * time.Second

type result struct {
	step   step
	took   time.Duration
	cpu    time.Duration
	output []byte
	err    error
}

// runAll runs each step when its needs are done. The first failure stops the others and prints its step's output.
func runAll(ctx context.Context, steps []step, p *progress) error {
	if err := check(steps); err != nil {
		return fmt.Errorf("planning the steps: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.begin(steps)
	states, results, active := map[string]state{}, make(chan result), 0
	start := func() {
		for _, s := range next(steps, states) {
			states[s.name] = running
			active++
			p.started(s)
			go func() { results <- runStep(ctx, s) }()
		}
	}
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	var failed *result
	for start(); active > 0; {
		select {
		case <-tick.C:
			p.still()
		case r := <-results:
			active--
			switch {
			case r.err == nil:
				states[r.step.name] = done
				p.done(r)
			case failed == nil:
				failed = &r
				cancel()
			}
			if failed == nil {
				start()
			}
		}
	}
	if failed != nil {
		return p.failed(*failed)
	}
	p.end()
	return nil
}

func runStep(ctx context.Context, s step) result {
	var out bytes.Buffer
	began := time.Now()
	process, err := s.do(ctx, &out)
	r := result{step: s, took: time.Since(began), output: out.Bytes(), err: err}
	if process != nil {
		r.cpu = process.UserTime() + process.SystemTime()
	}
	return r
}
