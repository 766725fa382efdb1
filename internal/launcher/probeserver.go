package launcher

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/launcher/liveness"
)

// probePatience bounds QEMU's answer about its run state. A probe waits a little longer (afterthought).
const probePatience = 1500 * time.Millisecond

// probeAnswer is the answer to a probe's process, which connects to the socket layout.ProbeSocket.
type probeAnswer struct {
	Excuse string `json:"excuse,omitempty"` // why a failed liveness probe does not count, empty if it counts
	Began  bool   `json:"began,omitempty"`
}

func (l *launcher) serveProbes(listener net.Listener) {
	var status asking
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		l.answerProbe(conn, &status)
	}
}

func (l *launcher) answerProbe(conn net.Conn, status *asking) {
	defer conn.Close()
	facts, ok := l.probeFacts(status)
	if !ok {
		return
	}
	// A probe that is gone needs no answer.
	if conn.SetDeadline(time.Now().Add(probePatience)) == nil {
		_ = json.NewEncoder(conn).Encode(probeAnswer{Excuse: liveness.Excuse(facts), Began: liveness.Began(facts)})
	}
}

func (l *launcher) probeFacts(status *asking) (liveness.Facts, bool) {
	known := make(chan liveness.Facts, 1)
	l.post(func() {
		known <- liveness.Facts{
			Started: l.guest.started, Stopping: l.guest.stopping, Arriving: l.guest.arriving(), Left: l.guest.migrated(),
			Ran: l.guest.ran, Held: l.holdState.Busy(), Migration: l.guest.migration,
		}
	})
	var facts liveness.Facts
	select {
	case facts = <-known:
	case <-l.ended:
		return facts, false
	}
	// A QEMU that waits for its guest, sends it or has sent it may answer late.
	if liveness.Excuse(facts) == "" {
		facts.RunState = status.answer(l.spawn, l.ended, func() string {
			// It ends with QEMU's monitor. Without an answer the state is unknown.
			state, _ := l.runState(context.Background())
			return state
		})
	}
	return facts, true
}

// asking is the unanswered question about the run state. There is one at a time, however many probes wait: a silent QEMU
// reads no commands, and a monitor that is full of them is lost.
type asking struct{ answered chan string }

// answer returns the result of ask, "" if that takes too long.
func (a *asking) answer(spawn func(func()), ended <-chan struct{}, ask func() string) string {
	if a.answered == nil {
		answered := make(chan string, 1)
		a.answered = answered
		spawn(func() { answered <- ask() })
	}
	timer := time.NewTimer(probePatience)
	defer timer.Stop()
	select {
	case state := <-a.answered:
		a.answered = nil
		return state
	case <-timer.C:
	case <-ended:
	}
	return ""
}

func askLauncher(ctx context.Context, dir string) (answer probeAnswer, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(dir, layout.ProbeSocket))
	if err != nil {
		return answer, fmt.Errorf("connecting to virt-launcher: %w", err)
	}
	defer conn.Close()
	if deadline, has := ctx.Deadline(); has {
		if err := conn.SetDeadline(deadline); err != nil {
			return answer, fmt.Errorf("asking virt-launcher: %w", err)
		}
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return answer, fmt.Errorf("waiting for virt-launcher's answer: %w", err)
	}
	return answer, nil
}
