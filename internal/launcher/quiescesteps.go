package launcher

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/launcher/quiesce"
	"drydock.dev/drydock/internal/qemu/agent"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
)

// Timeouts for QEMU and for the agent, including the wait for another conversation with the agent. Freezing writes back
// the guest's page cache.
const (
	monitorPatience = 10 * time.Second
	freezePatience  = 10 * time.Second
	thawPatience    = 5 * time.Second
	verifyPatience  = 3 * time.Second
	// An agent that does not thaw is asked again after thawPause, until thawFor.
	thawPause = 2 * time.Second
	thawFor   = 10 * time.Minute
)

// errRefused is for requests that may succeed later.
var errRefused = errors.New("the guest can't be held still now")

// holdState belongs to the driver.
type holdState struct {
	quiesce.Machine
	done           holdSteps
	waitingReplies []func(launch.Reply)
	timer          <-chan time.Time
	at             time.Time
}

type holdSteps struct {
	marked, frozen, stopped bool
	method                  launch.Method
	// refusal is the agent's; nothing means that it found no file system to freeze.
	refusal string
	nothing bool
	// since is when the guest was frozen or stopped.
	since time.Time
}

func (l *launcher) quiesce(q *launch.Quiesce, reply func(launch.Reply)) {
	switch {
	case len(q.Holder) == 0 || len(q.Holder) > launch.MaxHolder:
		reply(launch.Reply{Error: fmt.Sprintf("who holds the guest still must be named in 1 to %d bytes", launch.MaxHolder)})
		return
	case !l.guest.started || l.exit != nil || l.guest.absent() || l.guest.stopping:
		reply(launch.Reply{Error: "the guest does not run here, or is being ended", Refused: true})
		return
	}
	verdict := l.holdState.Ask(*q, rand.Text(), time.Now())
	switch {
	case verdict.Refused != "":
		reply(launch.Reply{Error: verdict.Refused, Refused: true})
	case verdict.Wait:
		l.holdState.waitingReplies = append(l.holdState.waitingReplies, reply)
	default:
		l.answerHold(reply)
	}
	if verdict.Action == quiesce.Take {
		l.logf("holding the guest still for %s", quiesce.Whom(q.Holder))
		l.spawn(func() {
			done, err := l.holdGuest(q)
			l.post(func() { l.recordHold(done, err) })
		})
	}
}

func (l *launcher) answerHold(reply func(launch.Reply)) {
	hold := l.holdState.Hold(time.Now())
	reply(launch.Reply{Hold: &hold})
}

func (l *launcher) recordHold(done holdSteps, err error) {
	l.holdState.done = done
	l.holdState.NotFrozen(done.refusal, done.nothing)
	action := l.holdState.Taken(done.method, done.since, err, time.Now())
	asking := l.holdState.waitingReplies
	l.holdState.waitingReplies = nil
	for _, reply := range asking {
		if hold := l.holdState.Hold(time.Now()); !hold.Lasts() {
			reply(launch.Reply{Error: hold.Ended, Refused: errors.Is(err, errRefused)})
			continue
		}
		l.answerHold(reply)
	}
	l.runAction(action)
}

// verify replies with the current hold, after querying the agent if asked.Verify.
func (l *launcher) verify(asked *launch.Held, reply func(launch.Reply)) {
	if !asked.Verify || !l.holdState.Agent() {
		l.answerHold(reply)
		return
	}
	token := l.holdState.Hold(time.Now()).Token
	l.spawn(func() {
		var status string
		err := l.withAgent(verifyPatience, func(ctx context.Context, c *agent.Client) (err error) {
			status, err = c.FreezeStatus(ctx)
			return err
		})
		l.post(func() {
			if (err != nil || status != agent.Frozen) && l.holdState.Hold(time.Now()).Token == token {
				l.runAction(l.holdState.Break("the guest agent does not say that the file systems are still frozen", time.Now()))
			}
			l.answerHold(reply)
		})
	})
}

func (l *launcher) release(r *launch.Release, reply func(launch.Reply)) {
	action, was := l.holdState.Release(*r, time.Now())
	l.runAction(action)
	if !was {
		reply(launch.Reply{Hold: &launch.Hold{}})
		return
	}
	l.answerHold(reply)
}

func (l *launcher) runAction(action quiesce.Action) {
	if action != quiesce.LetGo {
		return
	}
	hold := l.holdState.Hold(time.Now())
	l.logf("the guest was held still for %d ms (%s) and goes on: %s", hold.Milliseconds, hold.Method, hold.Ended)
	done := l.holdState.done
	l.spawn(func() {
		l.undoHold(done)
		l.post(l.holdState.Free)
	})
}

func (l *launcher) sendFrozen() {
	hold := l.holdState.Hold(time.Now())
	frozen := hold.Lasts() && hold.Holder == launch.HolderUser && hold.Method == launch.MethodAgent
	if frozen != l.state.Frozen {
		l.state.Frozen = frozen
		l.send(launch.Message{Event: &launch.Event{Frozen: &frozen}})
	}
}

// holdGuest's steps must be undone also if it fails. It queries QEMU after setting its marker, and virt-handler reads the
// marker before it migrates the guest and after it has stopped it: if both act at once, one sees the other.
func (l *launcher) holdGuest(q *launch.Quiesce) (done holdSteps, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), monitorPatience)
	defer cancel()
	done.marked = true
	if err := l.addMarker(ctx, launch.HeldMarker); err != nil {
		return done, err
	}
	state, err := l.runStateUnlessMigrating(ctx)
	if err != nil {
		return done, err
	}
	if state == "running" && q.Agent {
		done.method = launch.MethodAgent
		frozen, err := l.freeze(&done, q.AgentOnly)
		if err != nil {
			return done, fmt.Errorf("the guest agent did not freeze the guest's file systems: %w", err)
		}
		if frozen > 0 || q.AgentOnly {
			return done, nil
		}
		done.nothing = done.refusal == ""
	}
	if q.AgentOnly {
		return done, fmt.Errorf("%w: it does not run (QEMU's state %q), so that its agent can't freeze it", errRefused, state)
	}
	return l.stopCPUs(done)
}

// freeze returns the number of frozen file systems. After an agent's error it thaws the guest, unless only the agent may
// hold it.
func (l *launcher) freeze(done *holdSteps, only bool) (frozen int, err error) {
	err = l.withAgent(freezePatience, func(ctx context.Context, c *agent.Client) (err error) {
		// An agent that does not answer is not asked to freeze, so nobody waits for it to thaw.
		if err = c.Ping(ctx); err != nil {
			return err
		}
		done.frozen, done.since = true, time.Now()
		frozen, err = c.Freeze(ctx)
		var answer *agent.Error
		if only || !errors.As(err, &answer) {
			return err
		}
		done.refusal = answer.Desc
		return c.Thaw(ctx)
	})
	return frozen, err
}

// stopCPUs stops a running guest. A paused one stays as it is.
func (l *launcher) stopCPUs(done holdSteps) (holdSteps, error) {
	// The agent's part had its own timeout.
	ctx, cancel := context.WithTimeout(context.Background(), monitorPatience)
	defer cancel()
	done.stopped = true
	if err := l.addMarker(ctx, launch.StoppedMarker); err != nil {
		return done, err
	}
	state, err := l.runStateUnlessMigrating(ctx)
	if err != nil {
		return done, err
	}
	if state == "paused" || state == "prelaunch" {
		// Its owner will resume it.
		done.stopped, done.method = false, launch.MethodPaused
		l.removeMarker(ctx, launch.StoppedMarker)
		return done, nil
	}
	if state != "running" {
		return done, fmt.Errorf("%w: QEMU's state is %q", errRefused, state)
	}
	done.since = time.Now()
	if err := l.qemu.client.Execute(ctx, "stop", nil, nil); err != nil {
		return done, fmt.Errorf("stopping the guest: %w", err)
	}
	if state, err = l.runStateUnlessMigrating(ctx); err == nil && state != "paused" {
		err = fmt.Errorf("%w: QEMU's state is %q after it has stopped the guest", errRefused, state)
	}
	done.method = launch.MethodStop
	return done, err
}

func (l *launcher) runStateUnlessMigrating(ctx context.Context) (string, error) {
	var migration struct {
		Status migrationstatus.Status `json:"status"`
	}
	if err := l.qemu.client.Execute(ctx, "query-migrate", nil, &migration); err != nil {
		return "", fmt.Errorf("asking QEMU whether the guest is being migrated: %w", err)
	}
	if migration.Status.UnderWay() {
		return "", fmt.Errorf("%w: it is being migrated", errRefused)
	}
	return l.runState(ctx)
}

func (l *launcher) runState(ctx context.Context) (string, error) {
	var run struct {
		Status string `json:"status"`
	}
	if err := l.qemu.client.Execute(ctx, "query-status", nil, &run); err != nil {
		return "", fmt.Errorf("asking QEMU whether the guest runs: %w", err)
	}
	return run.Status, nil
}

// An earlier hold may have left the marker.
func (l *launcher) addMarker(ctx context.Context, marker string) error {
	add := func() error {
		return l.qemu.client.Execute(ctx, "object-add", map[string]any{"qom-type": launch.MarkerType, "id": marker}, nil)
	}
	err := add()
	if err != nil {
		l.removeMarker(ctx, marker)
		err = add()
	}
	if err != nil {
		return fmt.Errorf("marking the guest as held still: %w", err)
	}
	return nil
}

// A leftover marker only prevents migration until the next hold.
func (l *launcher) removeMarker(ctx context.Context, marker string) {
	if err := l.qemu.client.Execute(ctx, "object-del", map[string]any{"id": marker}, nil); err != nil {
		l.post(func() { l.logf("removing the marker %s: %v", marker, err) })
	}
}

func (l *launcher) undoHold(done holdSteps) {
	if done.stopped {
		l.runCPUs()
	}
	if done.frozen {
		l.thaw()
	}
	if done.marked {
		ctx, cancel := context.WithTimeout(context.Background(), monitorPatience)
		defer cancel()
		l.removeMarker(ctx, launch.HeldMarker)
	}
}

// The marker goes last: virt-handler would take a stopped guest without it for one that its user has paused.
func (l *launcher) runCPUs() {
	ctx, cancel := context.WithTimeout(context.Background(), monitorPatience)
	defer cancel()
	state, err := l.runState(ctx)
	if err == nil && (state == "paused" || state == "prelaunch") {
		err = l.qemu.client.Execute(ctx, "cont", nil, nil)
	}
	if err != nil {
		l.post(func() { l.logf("having the guest's CPUs run again: %v", err) })
	}
	l.removeMarker(ctx, launch.StoppedMarker)
}

// thaw repeats the request until the agent has answered, QEMU has ended, or thawFor is over. A hanging agent thaws when it
// continues.
func (l *launcher) thaw() {
	for end := time.Now().Add(thawFor); ; {
		err := l.withAgent(thawPatience, func(ctx context.Context, c *agent.Client) error { return c.Thaw(ctx) })
		var refusal *agent.Error
		if err == nil || errors.As(err, &refusal) || time.Now().After(end) {
			l.post(func() { l.logf("the guest agent was asked to thaw the file systems (%v)", err) })
			return
		}
		select {
		case <-l.qemu.gone:
			return
		case <-l.ended:
			return
		case <-time.After(thawPause):
		}
	}
}

// withAgent runs one conversation with the guest agent. QEMU serves one at a time.
func (l *launcher) withAgent(patience time.Duration, talk func(context.Context, *agent.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := agent.Dial(ctx, filepath.Join(l.config.Dir, layout.AgentSocket))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // all answers have arrived or are given up
	return talk(ctx, c)
}
