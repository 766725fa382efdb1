package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"
)

// respawnDelay keeps a program that fails at once from taking the processor.
const respawnDelay = 500 * time.Millisecond

// supervise runs a program, again and again when it ends, until the context ends.
func supervise(ctx context.Context, program string, args ...string) {
	for ctx.Err() == nil {
		log, err := openLog(program)
		if err != nil {
			say("opening a log: %v", err)
			return
		}
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Run(); errors.Is(err, os.ErrNotExist) {
			say("starting %s: %v", program, err)
			_ = log.Close()
			return
		}
		_ = log.Close()
		select {
		case <-ctx.Done():
		case <-time.After(respawnDelay):
		}
	}
}
