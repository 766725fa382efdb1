package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"
)

const (
	// respawnDelay is the shortest delay before a program's restart: a login must be there again soon.
	respawnDelay = 500 * time.Millisecond
	// mostRespawnDelay bounds the delay of a program that fails again and again: its cost must be invisible beside that
	// of an idle guest.
	mostRespawnDelay = 10 * time.Second
	// steady is the run time from which an end is no failed start.
	steady = 2 * time.Second
)

// backoff computes the delay before a program's restart. The zero value is for a program that has not ended yet.
type backoff struct{ last time.Duration }

// The delay doubles as long as the program ends soon.
func (b *backoff) next(ran time.Duration) time.Duration {
	if ran >= steady || b.last == 0 {
		b.last = respawnDelay
	} else {
		b.last = min(2*b.last, mostRespawnDelay)
	}
	return b.last
}

func supervise(ctx context.Context, program string, args ...string) {
	var delay backoff
	for ctx.Err() == nil {
		log, err := openLog(program)
		if err != nil {
			say("opening a log: %v", err)
			return
		}
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stdout, cmd.Stderr = log, log
		began := time.Now()
		if err := cmd.Run(); errors.Is(err, os.ErrNotExist) {
			say("starting %s: %v", program, err)
			_ = log.Close()
			return
		}
		_ = log.Close()
		select {
		case <-ctx.Done():
		case <-time.After(delay.next(time.Since(began))):
		}
	}
}
