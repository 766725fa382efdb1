package launcher

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/qemu/qmp"
)

type standIn struct {
	mu sync.Mutex
	// said has its commands, without the synchronization.
	said   []string
	frozen bool
	// hangs stops it from answering guest-fsfreeze-freeze, silent from answering anything; none makes it freeze no file
	// system.
	hangs, silent, none bool
	// refuses is its error for guest-fsfreeze-freeze, which leaves file systems frozen.
	refuses string
}

func (r *running) agent(a *standIn) *standIn {
	r.t.Helper()
	listener, err := net.Listen("unix", filepath.Join(r.dir, layout.AgentSocket))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			a.serve(conn)
		}
	}()
	return a
}

func (a *standIn) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewScanner(conn)
	for in.Scan() {
		var c struct {
			Execute   string
			Arguments struct{ ID int64 }
		}
		if json.Unmarshal(bytes.TrimLeft(in.Bytes(), "\xff"), &c) != nil {
			continue
		}
		if a.silent {
			continue
		}
		if c.Execute == "guest-sync-delimited" {
			fmt.Fprintf(conn, "\xff{\"return\": %d}\n", c.Arguments.ID)
			continue
		}
		answer := a.do(c.Execute)
		if c.Execute == "guest-fsfreeze-freeze" && a.refuses != "" {
			fmt.Fprintf(conn, "{\"error\": {\"class\": \"GenericError\", \"desc\": %q}}\n", a.refuses)
			continue
		}
		if answer != "" {
			fmt.Fprintf(conn, "{\"return\": %s}\n", answer)
		}
	}
}

func (a *standIn) do(command string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said = append(a.said, command)
	switch command {
	case "guest-fsfreeze-freeze":
		a.frozen = true
		if a.hangs {
			return ""
		}
		if a.none {
			return "0"
		}
		return "2"
	case "guest-fsfreeze-thaw":
		a.frozen = false
		return "2"
	case "guest-fsfreeze-status":
		if a.frozen {
			return `"frozen"`
		}
		return `"thawed"`
	}
	return "{}"
}

func (a *standIn) isFrozen() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.frozen
}

func (c *client) hold(q launch.Quiesce) launch.Hold {
	c.t.Helper()
	reply := c.ask(launch.Request{Quiesce: &q})
	if reply.Hold == nil || !reply.Hold.Lasts() || reply.Hold.Holder != q.Holder {
		c.t.Fatalf("asking for a hold: %+v", reply)
	}
	return *reply.Hold
}

// holdNext requests a hold after another one, whose complete end is not reported.
func (c *client) holdNext(q launch.Quiesce) {
	c.t.Helper()
	waitFor(c.t, "the end of the earlier hold", func() bool { return !c.ask(launch.Request{Quiesce: &q}).Refused })
	c.hold(q)
}

func (c *client) held(verify bool) launch.Hold {
	c.t.Helper()
	reply := c.ask(launch.Request{Held: &launch.Held{Verify: verify}})
	if reply.Hold == nil {
		c.t.Fatalf("asking what holds the guest: %+v", reply)
	}
	return *reply.Hold
}

func (c *client) release(holder, token string) launch.Hold {
	c.t.Helper()
	reply := c.ask(launch.Request{Release: &launch.Release{Holder: holder, Token: token}})
	if reply.Hold == nil {
		c.t.Fatalf("releasing the guest: %+v", reply)
	}
	return *reply.Hold
}

func awaitNoMarkers(t *testing.T, m *qmp.Client) {
	t.Helper()
	waitFor(t, "the markers' removal", func() bool { return len(holdMarkers(t, m)) == 0 })
}

func holdMarkers(t *testing.T, m *qmp.Client) (found []string) {
	t.Helper()
	var list []struct{ Name string }
	if err := m.Execute(t.Context(), "qom-list", properties{"path": "/objects"}, &list); err != nil {
		t.Fatal(err)
	}
	for _, o := range list {
		if strings.HasPrefix(o.Name, "held-") {
			found = append(found, o.Name)
		}
	}
	slices.Sort(found)
	return found
}

func TestAGuestIsStoppedAndGoesOn(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.start(30)
	m := r.monitor()
	hold := c.hold(launch.Quiesce{Holder: "snap", Milliseconds: 30000})
	if hold.Method != launch.MethodStop {
		t.Errorf("the guest is held by %q", hold.Method)
	}
	awaitRunState(t, m, "paused")
	if got := holdMarkers(t, m); !slices.Equal(got, []string{"held-still", "held-stopped"}) {
		t.Errorf("QEMU has the markers %q", got)
	}
	// virt-handler restarts in between.
	_ = c.conn.Close()
	c, state := r.connect()
	if !state.Quiesces {
		t.Error("the launcher does not say that it can hold a guest still")
	}
	if again := c.hold(launch.Quiesce{Holder: "snap", Milliseconds: 30000}); again.Token != hold.Token {
		t.Errorf("the same holder has another token")
	}
	if reply := c.ask(launch.Request{Quiesce: &launch.Quiesce{Holder: "other", Milliseconds: 1000}}); !reply.Refused || !strings.Contains(reply.Error, `the snapshot "snap"`) {
		t.Errorf("another holder is answered %+v", reply)
	}
	if none := c.release("other", hold.Token); none.Token != "" {
		t.Errorf("another holder has released %+v", none)
	}
	if got := c.held(true); got.Token != hold.Token || !got.Lasts() {
		t.Errorf("the guest is held by %+v", got)
	}
	if ended := c.release("snap", hold.Token); ended.Token != hold.Token || ended.Lasts() {
		t.Errorf("released: %+v", ended)
	}
	awaitRunState(t, m, "running")
	awaitNoMarkers(t, m)
	if got := c.held(false); got.Lasts() {
		t.Errorf("the guest is held by %+v", got)
	}
}

// shortHold requests the shortest hold that begins before it ends, and returns its minimal duration in milliseconds.
func shortHold(c *client) (hold launch.Hold, least int64) {
	q := launch.Quiesce{Holder: "snap", Milliseconds: 1}
	waitFor(c.t, "a hold", func() bool {
		asked := time.Now()
		reply := c.ask(launch.Request{Quiesce: &q})
		if reply.Hold == nil {
			// Its time was over before the guest stood still.
			q.Milliseconds = 2 * max(1000, q.Milliseconds)
			return false
		}
		hold, least = *reply.Hold, max(1000, q.Milliseconds)-time.Since(asked).Milliseconds()-1
		return hold.Lasts()
	})
	return hold, least
}

func TestAHoldEndsAtItsDeadlineWithoutVirtHandler(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.start(30)
	m := r.monitor()
	hold, least := shortHold(c)
	_ = c.conn.Close()
	awaitRunState(t, m, "running")
	awaitNoMarkers(t, m)
	c, _ = r.connect()
	// The deadline counts from the request, the duration from the guest's stop.
	if got := c.held(true); got.Token != hold.Token || got.Lasts() || !got.TimedOut || got.Milliseconds < least {
		t.Errorf("after its deadline the hold is %+v", got)
	}
}

func TestAGuestThatItsUserHasPausedStaysPaused(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.start(30)
	m := r.monitor()
	execute(t, m, "stop", nil)
	hold := c.hold(launch.Quiesce{Holder: "snap", Milliseconds: 30000, Agent: true})
	if hold.Method != launch.MethodPaused {
		t.Errorf("the guest is held by %q", hold.Method)
	}
	c.release("snap", "")
	awaitNoMarkers(t, m)
	awaitRunState(t, m, "paused")
	c.holdNext(launch.Quiesce{Holder: "snap", Milliseconds: 30000})
	execute(t, m, "cont", nil)
	waitFor(t, "the hold's end", func() bool { return !c.held(false).Lasts() })
}

func TestTheAgentFreezesAndThaws(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.start(30)
	m, agent := r.monitor(), r.agent(&standIn{})
	hold := c.hold(launch.Quiesce{Holder: launch.HolderUser, Milliseconds: 30000, Agent: true, AgentOnly: true})
	if hold.Method != launch.MethodAgent || !agent.isFrozen() {
		t.Errorf("the guest is held by %q, frozen: %v", hold.Method, agent.isFrozen())
	}
	awaitRunState(t, m, "running")
	if got := c.held(true); !got.Lasts() {
		t.Errorf("the guest is held by %+v", got)
	}
	agent.do("guest-fsfreeze-thaw")
	if got := c.held(true); got.Lasts() || !strings.Contains(got.Ended, "still frozen") {
		t.Errorf("after somebody has thawed it: %+v", got)
	}
	awaitNoMarkers(t, m)
	c.holdNext(launch.Quiesce{Holder: launch.HolderUser, Milliseconds: 30000, Agent: true})
	c.release(launch.HolderUser, "")
	waitFor(t, "the thaw", func() bool { return !agent.isFrozen() })
	awaitNoMarkers(t, m)
}

func TestAnAgentThatFreezesNothing(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.start(30)
	m, agent := r.monitor(), r.agent(&standIn{none: true})
	if hold := c.hold(launch.Quiesce{Holder: "snap", Milliseconds: 30000, Agent: true}); hold.Method != launch.MethodStop || !hold.NothingToFreeze {
		t.Errorf("the guest is held by %+v", hold)
	}
	awaitRunState(t, m, "paused")
	c.release("snap", "")
	awaitRunState(t, m, "running")
	waitFor(t, "the thaw", func() bool { return !agent.isFrozen() })
}

func TestAnAgentThatCannotFreeze(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.start(30)
	m, agent := r.monitor(), r.agent(&standIn{refuses: "failed to freeze /srv: Input/output error"})
	reply := c.ask(launch.Request{Quiesce: &launch.Quiesce{Holder: launch.HolderUser, Milliseconds: 30000, Agent: true, AgentOnly: true}})
	if reply.Hold != nil || !strings.Contains(reply.Error, "did not freeze the guest's file systems: guest agent: guest-fsfreeze-freeze: failed to freeze /srv") {
		t.Errorf("a user's freeze is answered %+v", reply)
	}
	awaitNoMarkers(t, m)
	c.holdNext(launch.Quiesce{Holder: "snap", Milliseconds: 30000, Agent: true})
	if hold := c.held(false); hold.Method != launch.MethodStop || hold.Refusal != "failed to freeze /srv: Input/output error" || hold.NothingToFreeze || agent.isFrozen() {
		t.Errorf("the guest is held by %+v, frozen: %v", hold, agent.isFrozen())
	}
	awaitRunState(t, m, "paused")
	c.release("snap", "")
	awaitRunState(t, m, "running")
	if got := c.held(false); got.Refusal == "" {
		t.Errorf("the hold that has ended is told as %+v", got)
	}
}

func TestAnAgentThatHangsInFreezeIsThawed(t *testing.T) {
	t.Parallel()
	r := newLauncher(t)
	c, _ := r.start(30)
	m, agent := r.monitor(), r.agent(&standIn{hangs: true})
	reply := c.ask(launch.Request{Quiesce: &launch.Quiesce{Holder: "snap", Milliseconds: 60000, Agent: true}})
	if reply.Hold != nil || !strings.Contains(reply.Error, "did not freeze") || reply.Refused {
		t.Errorf("an agent that hangs: %+v", reply)
	}
	waitFor(t, "the thaw", func() bool { return !agent.isFrozen() })
	awaitNoMarkers(t, m)
	awaitRunState(t, m, "running")
}

func TestASilentAgentKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	r := newLauncher(t)
	c, _ := r.start(30)
	m, agent := r.monitor(), r.agent(&standIn{silent: true})
	reply := c.ask(launch.Request{Quiesce: &launch.Quiesce{Holder: "snap", Milliseconds: 60000, Agent: true}})
	if reply.Hold != nil || !strings.Contains(reply.Error, "did not freeze") || reply.Refused {
		t.Errorf("a silent agent: %+v", reply)
	}
	waitFor(t, "the next hold", func() bool {
		reply := c.ask(launch.Request{Quiesce: &launch.Quiesce{Holder: "next", Milliseconds: 30000}})
		return reply.Hold != nil && reply.Hold.Method == launch.MethodStop
	})
	c.release("next", "")
	awaitRunState(t, m, "running")
	if agent.isFrozen() || len(agent.said) > 0 {
		t.Errorf("the agent was told %q", agent.said)
	}
}

func TestAGuestThatIsHeldCanBeEnded(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.start(3600)
	m := r.monitor()
	c.hold(launch.Quiesce{Holder: "snap", Milliseconds: 30000})
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	awaitRunState(t, m, "running")
}

func TestAGuestThatIsBeingMigratedIsNotHeld(t *testing.T) {
	p := newPair(t)
	p.migrate(t)
	// QEMU reports it in an answer, or by an earlier event.
	if reply := p.atSource.ask(launch.Request{Quiesce: &launch.Quiesce{Holder: "snap", Milliseconds: 1000}}); !reply.Refused || !strings.Contains(reply.Error, "is being migrated") {
		t.Errorf("the source answers %+v", reply)
	}
	if reply := p.atTarget.ask(launch.Request{Quiesce: &launch.Quiesce{Holder: "snap", Milliseconds: 1000}}); !reply.Refused {
		t.Errorf("the target answers %+v", reply)
	}
	awaitNoMarkers(t, p.from)
}
