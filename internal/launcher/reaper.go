package launcher

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// reaper waits for the children that it starts and, as the container's process 1, for orphaned ones.
type reaper struct {
	signals chan os.Signal

	mu       sync.Mutex
	expected map[int]chan syscall.WaitStatus
}

func newReaper() *reaper {
	r := &reaper{signals: make(chan os.Signal, 1), expected: make(map[int]chan syscall.WaitStatus)}
	signal.Notify(r.signals, syscall.SIGCHLD)
	return r
}

// start runs fork, which returns a child's PID, and returns the channel for its exit status.
func (r *reaper) start(fork func() (int, error)) (int, <-chan syscall.WaitStatus, error) {
	// A child must not be reaped before it is expected.
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := fork()
	if err != nil {
		return 0, nil, err
	}
	ended := make(chan syscall.WaitStatus, 1)
	r.expected[pid] = ended
	return pid, ended, nil
}

func (r *reaper) run(ctx context.Context) {
	defer signal.Stop(r.signals)
	for {
		r.reap()
		select {
		case <-r.signals:
		case <-ctx.Done():
			return
		}
	}
}

func (r *reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil || pid <= 0:
			return
		}
		if ended := r.expected[pid]; ended != nil {
			ended <- status
			delete(r.expected, pid)
		}
	}
}
