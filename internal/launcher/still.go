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

// How long is waited for QEMU, and for the agent: to freeze, which writes back what the guest has in its
// memory; to thaw; and to say whether it is frozen. Each may have to wait for another conversation with the agent
// to end first.
const (
	monitorPatience = 10 * time.Second
	freezePatience  = 10 * time.Second
	thawPatience    = 5 * time.Second
	verifyPatience  = 3 * time.Second
	// An agent that does not thaw is asked again after a pause, for so long.
	thawPause = 2 * time.Second
	thawFor   = 10 * time.Minute
)

// errRefused is of what may be asked for again later.
var errRefused = errors.New("the guest can't be held still now")

// still is how the guest is held still. It belongs to the driver.
type still struct {
	quiesce.Machine
	// done is what was done to hold the guest, and is to be undone.
	done deeds
	// asking are the answers that wait for the guest to stand still.
	asking []func(launch.Reply)
	// timer fires at the time at.
	timer <-chan time.Time
	at    time.Time
}

// deeds are what was done to a guest.
type deeds struct {
	marked, frozen, stopped bool
	method                  launch.Method
	// refusal is why the agent could not freeze file systems, in its own words.
	refusal string
	// since is when the guest was told to stand still.
	since time.Time
}

// quiesce has the guest held still.
func (l *launcher) quiesce(q *launch.Quiesce, reply func(launch.Reply)) {
	switch {
	case len(q.Holder) == 0 || len(q.Holder) > launch.MaxHolder:
		reply(launch.Reply{Error: fmt.Sprintf("who holds the guest still must be named in 1 to %d bytes", launch.MaxHolder)})
		return
	case !l.guest.started || l.exit != nil || l.guest.absent() || l.guest.stopping:
		reply(launch.Reply{Error: "the guest does not run here, or is being ended", Refused: true})
		return
	}
	verdict := l.still.Ask(*q, rand.Text(), time.Now())
	switch {
	case verdict.Refused != "":
		reply(launch.Reply{Error: verdict.Refused, Refused: true})
	case verdict.Wait:
		l.still.asking = append(l.still.asking, reply)
	default:
		l.answerHold(reply)
	}
	if verdict.Action == quiesce.Take {
		l.logf("holding the guest still for %s", quiesce.Whom(q.Holder))
		l.spawn(func() {
			done, err := l.take(q)
			l.post(func() { l.taken(done, err) })
		})
	}
}

func (l *launcher) answerHold(reply func(launch.Reply)) {
	hold := l.still.Hold(time.Now())
	reply(launch.Reply{Hold: &hold})
}

// taken answers those who wait.
func (l *launcher) taken(done deeds, err error) {
	l.still.done = done
	l.still.Refused(done.refusal)
	action := l.still.Taken(done.method, done.since, err, time.Now())
	asking := l.still.asking
	l.still.asking = nil
	for _, reply := range asking {
		if hold := l.still.Hold(time.Now()); !hold.Lasts() {
			reply(launch.Reply{Error: hold.Ended, Refused: errors.Is(err, errRefused)})
			continue
		}
		l.answerHold(reply)
	}
	l.hold(action)
}

// verify says what holds the guest; after the agent was asked, if that is wanted.
func (l *launcher) verify(asked *launch.Held, reply func(launch.Reply)) {
	if !asked.Verify || !l.still.Agent() {
		l.answerHold(reply)
		return
	}
	token := l.still.Hold(time.Now()).Token
	l.spawn(func() {
		var status string
		err := l.talk(verifyPatience, func(ctx context.Context, c *agent.Client) (err error) {
			status, err = c.FreezeStatus(ctx)
			return err
		})
		l.post(func() {
			if (err != nil || status != agent.Frozen) && l.still.Hold(time.Now()).Token == token {
				l.hold(l.still.Break("the guest agent does not say that the file systems are still frozen", time.Now()))
			}
			l.answerHold(reply)
		})
	})
}

// release ends a hold.
func (l *launcher) release(r *launch.Release, reply func(launch.Reply)) {
	action, was := l.still.Release(*r, time.Now())
	l.hold(action)
	if !was {
		reply(launch.Reply{Hold: &launch.Hold{}})
		return
	}
	l.answerHold(reply)
}

// hold lets go of the guest if that is what the machine wants.
func (l *launcher) hold(action quiesce.Action) {
	if action != quiesce.LetGo {
		return
	}
	hold := l.still.Hold(time.Now())
	l.logf("the guest was held still for %d ms (%s) and goes on: %s", hold.Milliseconds, hold.Method, hold.Ended)
	done := l.still.done
	l.spawn(func() {
		l.letGo(done)
		l.post(l.still.Free)
	})
}

// watchHold sets the time at which a hold ends by itself, or takes it back.
func (l *launcher) watchHold() {
	until := l.still.Until()
	if until.Equal(l.still.at) {
		return
	}
	l.still.at, l.still.timer = until, nil
	if !until.IsZero() {
		l.still.timer = time.After(time.Until(until))
	}
}

// tellFrozen has virt-handler know whether a user has frozen the guest.
func (l *launcher) tellFrozen() {
	hold := l.still.Hold(time.Now())
	frozen := hold.Lasts() && hold.Holder == launch.HolderUser && hold.Method == launch.MethodAgent
	if frozen != l.state.Frozen {
		l.state.Frozen = frozen
		l.tell(launch.Message{Event: &launch.Event{Frozen: &frozen}})
	}
}

// take holds the guest still. What it has done is to be undone, also if it fails. It looks at QEMU after it
// has put its marker there, and virt-handler looks for the marker before it migrates the guest, and after it has
// stopped it: of two who act at once, one sees the other.
func (l *launcher) take(q *launch.Quiesce) (done deeds, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), monitorPatience)
	defer cancel()
	done.marked = true
	if err := l.mark(ctx, launch.HeldMarker); err != nil {
		return done, err
	}
	state, err := l.settledState(ctx)
	if err != nil {
		return done, err
	}
	if state == "running" && q.Agent {
		done.method = launch.MethodAgent
		frozen, err := l.freeze(&done, q.AgentOnly)
		if err != nil || frozen > 0 || q.AgentOnly {
			return done, explained(err)
		}
	}
	if q.AgentOnly {
		return done, fmt.Errorf("%w: it does not run (QEMU's state %q), so that its agent can't freeze it", errRefused, state)
	}
	return l.stopCPUs(done)
}

// freeze has the agent freeze file systems, and returns how many it has. An agent that answers that it can't has frozen none
// when this returns, unless nothing but the agent is to hold the guest.
func (l *launcher) freeze(done *deeds, only bool) (frozen int, err error) {
	err = l.talk(freezePatience, func(ctx context.Context, c *agent.Client) (err error) {
		// An agent that is silent from the start was not told to freeze, and nobody has to wait until it is there to thaw.
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

func explained(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the guest agent did not freeze the guest's file systems: %w", err)
}

// stopCPUs stops a guest that runs, and leaves one alone that is paused.
func (l *launcher) stopCPUs(done deeds) (deeds, error) {
	// The agent has had its own time.
	ctx, cancel := context.WithTimeout(context.Background(), monitorPatience)
	defer cancel()
	done.stopped = true
	if err := l.mark(ctx, launch.StoppedMarker); err != nil {
		return done, err
	}
	state, err := l.settledState(ctx)
	if err != nil {
		return done, err
	}
	if state == "paused" || state == "prelaunch" {
		// Whoever has stopped it has it run again.
		done.stopped, done.method = false, launch.MethodPaused
		l.unmark(ctx, launch.StoppedMarker)
		return done, nil
	}
	if state != "running" {
		return done, fmt.Errorf("%w: QEMU's state is %q", errRefused, state)
	}
	done.since = time.Now()
	if err := l.qemu.client.Execute(ctx, "stop", nil, nil); err != nil {
		return done, fmt.Errorf("stopping the guest: %w", err)
	}
	if state, err = l.settledState(ctx); err == nil && state != "paused" {
		err = fmt.Errorf("%w: QEMU's state is %q after it has stopped the guest", errRefused, state)
	}
	done.method = launch.MethodStop
	return done, err
}

// settledState gives QEMU's run state. It fails for a guest that is being migrated.
func (l *launcher) settledState(ctx context.Context) (string, error) {
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

// runState gives QEMU's run state.
func (l *launcher) runState(ctx context.Context) (string, error) {
	var run struct {
		Status string `json:"status"`
	}
	if err := l.qemu.client.Execute(ctx, "query-status", nil, &run); err != nil {
		return "", fmt.Errorf("asking QEMU whether the guest runs: %w", err)
	}
	return run.Status, nil
}

// mark adds a marker. An earlier hold may have left it.
func (l *launcher) mark(ctx context.Context, marker string) error {
	add := func() error {
		return l.qemu.client.Execute(ctx, "object-add", map[string]any{"qom-type": launch.MarkerType, "id": marker}, nil)
	}
	err := add()
	if err != nil {
		l.unmark(ctx, marker)
		err = add()
	}
	if err != nil {
		return fmt.Errorf("marking the guest as held still: %w", err)
	}
	return nil
}

// unmark removes a marker. One that is left keeps the guest from migrating until it is held again, and is no worse.
func (l *launcher) unmark(ctx context.Context, marker string) {
	if err := l.qemu.client.Execute(ctx, "object-del", map[string]any{"id": marker}, nil); err != nil {
		l.post(func() { l.logf("removing the marker %s: %v", marker, err) })
	}
}

// letGo has the guest go on, and removes the markers after that.
func (l *launcher) letGo(done deeds) {
	if done.stopped {
		l.runCPUs()
	}
	if done.frozen {
		l.thaw()
	}
	if done.marked {
		ctx, cancel := context.WithTimeout(context.Background(), monitorPatience)
		defer cancel()
		l.unmark(ctx, launch.HeldMarker)
	}
}

// runCPUs has a guest run again whose CPUs were stopped. The marker goes after that: virt-handler would take the
// guest for one that its user has paused.
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
	l.unmark(ctx, launch.StoppedMarker)
}

// thaw asks the agent until it has answered, QEMU has ended, or there is no hope any more. An agent that hangs hears
// what was said to it when it goes on.
func (l *launcher) thaw() {
	for end := time.Now().Add(thawFor); ; {
		err := l.talk(thawPatience, func(ctx context.Context, c *agent.Client) error { return c.Thaw(ctx) })
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

// talk has a conversation with the guest agent. QEMU serves one at a time.
func (l *launcher) talk(patience time.Duration, talk func(context.Context, *agent.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := agent.Dial(ctx, filepath.Join(l.config.Dir, layout.AgentSocket))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // all answers are in, or given up
	return talk(ctx, c)
}
