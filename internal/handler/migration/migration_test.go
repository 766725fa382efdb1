package migration

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"drydock.dev/drydock/internal/certs/certstest"
	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/handler/migrationproxy"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// The two sides talk over TLS, as on two nodes.

// patience is for an event that comes soon.
const patience = 4 * time.Minute

// None of these tests is about the nodes' timeouts.
var generous = migrationproxy.Limits{Greeting: patience, Silence: patience}

// id is the migration of all tests.
var id = ID{Migration: "m", VMI: "u", Namespace: "ns", Name: "vm"}

// clock moves only when the test moves it.
type surroundings struct {
	t       testing.TB
	woken   chan struct{}
	running sync.WaitGroup

	mu    sync.Mutex
	clock time.Time
	lines []string
}

func newSurroundings(t testing.TB) *surroundings {
	return &surroundings{t: t, woken: make(chan struct{}, 1), clock: time.Unix(1e9, 0)}
}

func (s *surroundings) env(node *Node) Env {
	return Env{Node: node, Go: func(f func()) { s.running.Go(f) }, Wake: s.wake, Now: s.now, Log: s.log()}
}

func (s *surroundings) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

func (s *surroundings) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

func (s *surroundings) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = s.clock.Add(d)
}

func (s *surroundings) log() logr.Logger {
	return funcr.New(func(_, text string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lines = append(s.lines, text)
	}, funcr.Options{})
}

func (s *surroundings) logged(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(strings.Join(s.lines, "\n"), text)
}

// await checks a condition at each wake-up, as a driver does, until it is true.
func (s *surroundings) await(what string, reached func() bool) {
	s.t.Helper()
	for timeout := time.After(patience); !reached(); {
		select {
		case <-s.woken:
		case <-timeout:
			s.t.Fatalf("waited for %s in vain", what)
		}
	}
}

func (s *surroundings) ends() {
	s.t.Helper()
	ended := make(chan struct{})
	go func() {
		s.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		s.t.Fatal("a goroutine of the migration does not end")
	}
}

type nodes struct {
	t        testing.TB
	here     *surroundings
	there    *surroundings
	calls    func(server, protocol string) *tls.Config
	serves   *tls.Config
	expected *migrationproxy.Expectations
	address  string
	// stop ends the target's virt-handler.
	stop func()
}

func newNodes(t testing.TB) *nodes {
	t.Helper()
	authority := certstest.NewAuthority(t)
	n := &nodes{t: t, here: newSurroundings(t), there: newSurroundings(t)}
	n.calls = authority.Handler(t, "node1").PeerClientConfig
	n.serves = authority.Handler(t, "node2").PeerServerConfig(migrationwire.Protocol)
	n.serve("127.0.0.1:0")
	return n
}

// The virt-handler does not expect a migration yet.
func (n *nodes) serve(address string) {
	n.t.Helper()
	listener, err := net.Listen("tcp", address)
	// A short-lived connection of another test may use the port of a server that was stopped.
	for deadline, tick := time.Now().Add(patience), time.Tick(10*time.Millisecond); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(deadline); <-tick {
		listener, err = net.Listen("tcp", address)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.address, n.expected = listener.Addr().String(), &migrationproxy.Expectations{}
	server := migrationproxy.NewServer(n.expected, n.serves, nil, logr.Discard())
	server.Limits = generous
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(ctx, listener) })
	n.stop = sync.OnceFunc(func() { cancel(); serving.Wait() })
	n.t.Cleanup(n.stop)
}

func (n *nodes) source() *Source {
	n.t.Helper()
	s, err := NewSource(n.t.Context(), n.here.env(&Node{TLS: n.calls, Limits: generous}), id, "node2", n.address)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { s.Close(); n.here.ends() })
	return s
}

func (n *nodes) target(from string, dial func(context.Context) (*net.UnixConn, error)) *Target {
	n.t.Helper()
	t := NewTarget(n.there.env(&Node{Expected: n.expected}), id, from, migrationproxy.Target{Dial: dial})
	n.t.Cleanup(t.Close)
	return t
}

func noQEMU(context.Context) (*net.UnixConn, error) { return nil, errors.New("there is no QEMU") }

func atSource(s *Source) (f switchover.SourceFacts) {
	s.AddFacts(&f, switchover.Limits{})
	return f
}

func atTarget(t *Target) (f switchover.TargetFacts) {
	t.AddFacts(&f)
	return f
}

func TestWhatEachSideTellsTheOther(t *testing.T) {
	n := newNodes(t)
	source, target := n.source(), n.target("node1", noQEMU)
	n.here.await("a control connection", func() bool { return atSource(source).Connected })
	if f := atSource(source); f.Ready || f.Ran || f.Never {
		t.Errorf("before the target has said anything, the source knows %+v", f)
	}
	for _, c := range []struct {
		fact switchover.Fact
		want switchover.SourceFacts
	}{
		{"", switchover.SourceFacts{Connected: true}},
		{switchover.Ready, switchover.SourceFacts{Connected: true, Ready: true}},
		{switchover.Ran, switchover.SourceFacts{Connected: true, Ready: true, Ran: true}},
		{switchover.Never, switchover.SourceFacts{Connected: true, Ready: true, Ran: true, Never: true}},
	} {
		target.Agree(switchover.Transport{})
		target.Tell(c.fact)
		n.here.await("the fact "+string(c.fact), func() bool { return atSource(source) == c.want })
	}
	if atTarget(target).Released {
		t.Error("before the source has said anything, the guest is released")
	}
	source.Tell("")
	source.Tell(switchover.Released)
	n.there.await("the release", func() bool { return atTarget(target).Released })
}

// Neither the end of a connection nor another virt-handler revokes a fact.
func TestFactsAreToldAgainAfterAVirtHandlersRestart(t *testing.T) {
	n := newNodes(t)
	source, target := n.source(), n.target("node1", noQEMU)
	source.Tell(switchover.Released)
	target.Agree(switchover.Transport{})
	target.Tell(switchover.Ready)
	n.here.await("the target to be ready", func() bool { return atSource(source).Ready })
	n.there.await("the release", func() bool { return atTarget(target).Released })

	n.stop()
	n.here.await("the connection's end", func() bool { return !atSource(source).Connected })
	if f := atSource(source); !f.Ready {
		t.Error("a target that was ready is not any more, because its connection has ended")
	}
	if !atTarget(target).Released {
		t.Error("a guest that was released is not any more, because its connection has ended")
	}

	n.serve(n.address)
	next := n.target("node1", noQEMU)
	n.there.await("the release, told to the next virt-handler", func() bool { return atTarget(next).Released })
	n.here.await("the next connection", func() bool { return atSource(source).Connected })
}

func TestATargetThatIsClosedIsNotReached(t *testing.T) {
	n := newNodes(t)
	target := n.target("node1", noQEMU)
	source := n.source()
	n.here.await("a control connection", func() bool { return atSource(source).Connected })
	target.Close()
	n.here.await("its end", func() bool { return !atSource(source).Connected })
	source.Tell(switchover.Released)
	again := n.target("node1", noQEMU)
	n.there.await("the release", func() bool { return atTarget(again).Released })
	if atTarget(target).Released {
		t.Error("what is closed has heard of the release")
	}
}

func TestAnotherNodesSourceIsNotTakenForTheRecordedOne(t *testing.T) {
	n := newNodes(t)
	target := n.target("node3", noQEMU)
	source := n.source()
	source.Tell(switchover.Released)
	n.eventually("the refusal", func() bool { return n.here.logged("expects no migration") })
	if atTarget(target).Released || atSource(source).Connected {
		t.Error("node1 has released the guest that node3 has")
	}
}

// The condition wakes nobody.
func (n *nodes) eventually(what string, reached func() bool) {
	n.t.Helper()
	for deadline, tick := time.Now().Add(patience), time.Tick(10*time.Millisecond); !reached(); <-tick {
		if time.Now().After(deadline) {
			n.t.Fatalf("waited for %s in vain", what)
		}
	}
}

func TestAnAddressThatIsNoneIsRefused(t *testing.T) {
	here := newSurroundings(t)
	for _, address := range []string{"", "node2", "node2:8188", "10.0.0.2", "10.0.0.2:x"} {
		if s, err := NewSource(t.Context(), here.env(&Node{}), id, "node2", address); err == nil {
			s.Close()
			t.Errorf("address %q is called", address)
		}
	}
	here.ends()
}

// A new connection may replace one whose end the target has not noticed.
func TestConnectionsMayOverlap(t *testing.T) {
	woken := 0
	h := received{wake: func() { woken++ }, now: time.Now}
	for i, c := range []struct{ began, connected bool }{{true, true}, {true, true}, {false, true}, {false, false}, {true, true}} {
		if h.countConnection(c.began); h.connected() != c.connected {
			t.Errorf("after change %d: connected %v", i, !c.connected)
		}
		if woken != i+1 {
			t.Errorf("after change %d: woken %d times", i, woken)
		}
	}
	if h.add(migrationwire.Kind(switchover.Ran)); woken != 6 || !h.has(switchover.Ran) || h.has(switchover.Never) {
		t.Errorf("a fact: woken %d times, %v", woken, h.facts)
	}
}

func silent(t *testing.T) (*Source, *surroundings) {
	t.Helper()
	here := newSurroundings(t)
	ctx, cancel := context.WithCancel(t.Context())
	return &Source{
		env: here.env(&Node{}), out: &migrationproxy.Outgoing{Node: "node2", Header: id.header(), Log: here.log()}, ctx: ctx, cancel: cancel,
		forwards: map[migrationwire.Channel]*migrationproxy.Forward{}, received: received{wake: here.wake, now: here.now},
	}, here
}

func TestWhatTheSourceRemembers(t *testing.T) {
	limits := switchover.Limits{Stall: 10 * time.Second}
	stalls := func(s *Source) {
		s.RecordMemoryProgress(switchover.Sample{Elapsed: time.Second, Transferred: 1})
		s.RecordMemoryProgress(switchover.Sample{Elapsed: 11 * time.Second, Transferred: 1})
	}
	forwards := func(s *Source) { s.forwards[migrationwire.Stream] = &migrationproxy.Forward{} }
	stalled := switchover.DecideConvergence(switchover.Progress{Last: switchover.Sample{Elapsed: 11 * time.Second, Transferred: 1}, Moved: time.Second}, limits, 0)
	if stalled.Action != switchover.GiveUp {
		t.Fatalf("it is no stall: %+v", stalled)
	}
	stuck := switchover.Convergence{Action: switchover.GiveUp, Reason: "it is stuck"}
	for name, c := range map[string]struct {
		do    func(*Source, *surroundings)
		begun bool
		want  switchover.SourceFacts
	}{
		"nothing":                           {func(*Source, *surroundings) {}, false, switchover.SourceFacts{}},
		"its streams are passed on":         {func(s *Source, _ *surroundings) { forwards(s) }, false, switchover.SourceFacts{Streams: true}},
		"it was canceled":                   {func(s *Source, _ *surroundings) { s.RecordCancelReason("too slow") }, false, switchover.SourceFacts{Cause: "too slow"}},
		"it was canceled twice":             {func(s *Source, _ *surroundings) { s.RecordCancelReason("too slow"); s.RecordCancelReason("aborted") }, false, switchover.SourceFacts{Cause: "too slow"}},
		"the guest stands still, since now": {func(s *Source, _ *surroundings) { s.RecordStopped(true) }, false, switchover.SourceFacts{}},
		"the guest stands still for a while": {func(s *Source, e *surroundings) {
			s.RecordStopped(true)
			e.pass(time.Second)
			s.RecordStopped(true)
			e.pass(time.Second)
		}, false, switchover.SourceFacts{Stopped: 2 * time.Second}},
		"the guest stood still, and goes on": {func(s *Source, e *surroundings) { s.RecordStopped(true); e.pass(time.Second); s.RecordStopped(false) }, false, switchover.SourceFacts{}},
		"the guest stands still once more": {func(s *Source, e *surroundings) {
			s.RecordStopped(true)
			e.pass(time.Second)
			s.RecordStopped(false)
			s.RecordStopped(true)
			e.pass(3 * time.Second)
		}, false, switchover.SourceFacts{Stopped: 3 * time.Second}},
		"QEMU was told to hand it over": {func(s *Source, _ *surroundings) { s.RecordContinue() }, false, switchover.SourceFacts{Continued: true}},
		"the target has loaded it":      {func(s *Source, _ *surroundings) { s.received.add(migrationwire.Loaded) }, false, switchover.SourceFacts{Loaded: true}},
		"the target will tell when it has loaded it": {func(s *Source, _ *surroundings) {
			s.agreed.set(migrationwire.Transport{PostCopy: true, TellsLoaded: true})
		}, false, switchover.SourceFacts{}},
		"the target never tells that it has loaded it": {func(s *Source, _ *surroundings) { s.agreed.set(migrationwire.Transport{PostCopy: true}) }, false, switchover.SourceFacts{Loaded: true}},
		"it stalls":                           {func(s *Source, _ *surroundings) { forwards(s); stalls(s) }, true, switchover.SourceFacts{Begun: true, Streams: true, Convergence: stalled}},
		"it stalls, another has passed it on": {func(s *Source, _ *surroundings) { stalls(s) }, true, switchover.SourceFacts{Begun: true}},
		"it has not begun":                    {func(s *Source, _ *surroundings) { forwards(s); stalls(s) }, false, switchover.SourceFacts{Streams: true}},
		"QEMU could not be told what is next": {func(s *Source, _ *surroundings) { s.RecordRefusal("it is stuck") }, true, switchover.SourceFacts{Begun: true, Convergence: stuck}},
	} {
		s, here := silent(t)
		c.do(s, here)
		got := switchover.SourceFacts{Begun: c.begun}
		c.want.Downtime = limits.Downtime
		if s.AddFacts(&got, limits); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		s.Close()
	}
}

func TestWhatTheSourceHasTold(t *testing.T) {
	s, _ := silent(t)
	defer s.Close()
	if diff := cmp.Diff(Told{}, s.Told()); diff != "" || s.Forwards(migrationwire.Stream) {
		t.Errorf("a migration that is new has done something:\n%s", diff)
	}
	first := []migrationwire.Disk{{Volume: "data"}}
	s.RecordRefusal("the guest can't be sent")
	s.RecordFinishMirrors()
	s.RecordPostCopySwitch()
	s.RecordContinue()
	s.RecordDowntimeLimit(time.Second)
	s.TellDisks(first)
	s.TellDisks(nil) // the target has a list
	want := Told{
		Refused: "the guest can't be sent", Disks: first, DisksSent: true,
		Finished: true, Switched: true, Continued: true, Downtime: time.Second,
	}
	if diff := cmp.Diff(want, s.Told()); diff != "" || s.Forwards(migrationwire.Stream) {
		t.Errorf("it does not know what it has told (-want +got):\n%s", diff)
	}
}

// Disks are copied before memory, and both are one progress.
func TestTheCopiesOfDisksAreProgress(t *testing.T) {
	s, here := silent(t)
	defer s.Close()
	s.forwards[migrationwire.Disks] = &migrationproxy.Forward{}
	limits := switchover.Limits{Stall: 10 * time.Second}
	fill := func(f switchover.SourceFacts) switchover.ConvergenceAction {
		s.AddFacts(&f, limits)
		return f.Convergence.Action
	}
	copied := switchover.SourceFacts{Mirrors: switchover.Mirrors{Begun: true, Done: 1, Total: 5}}
	s.RecordDiskProgress(&copied.Mirrors)
	here.pass(9 * time.Second)
	copied.Mirrors.Done = 2
	s.RecordDiskProgress(&copied.Mirrors)
	here.pass(9 * time.Second)
	if s.RecordDiskProgress(&copied.Mirrors); fill(copied) != switchover.LetCopy {
		t.Error("copies that go on are given up")
	}
	if rate := s.CopyRate(); rate != 0 {
		t.Errorf("2 bytes in 18 seconds are %d in a second", rate)
	}
	copied.Mirrors.Done = 200
	if s.RecordDiskProgress(&copied.Mirrors); s.CopyRate() != 11 {
		t.Errorf("200 bytes in 18 seconds are %d in a second", s.CopyRate())
	}
	copied.Mirrors.Done = 2
	s.RecordDiskProgress(&copied.Mirrors)
	memory := switchover.SourceFacts{Begun: true}
	if s.RecordMemoryProgress(switchover.Sample{Elapsed: time.Second, Transferred: 1}); fill(memory) != switchover.LetCopy {
		t.Error("memory that follows the disks is given up")
	}
	if s.RecordMemoryProgress(switchover.Sample{Elapsed: 11 * time.Second, Transferred: 1}); fill(memory) != switchover.GiveUp {
		t.Error("memory that is not sent is not given up")
	}
	if last := s.progress.Last; last.Elapsed != 29*time.Second || last.Transferred != 3 {
		t.Errorf("all in all it took %v for %d bytes", last.Elapsed, last.Transferred)
	}
}

// A migration shorter than the interval is not reported. Afterwards progress is reported once per interval. For a
// migration that a new virt-handler finds, the interval begins at that moment.
func TestWhenTheProgressIsDue(t *testing.T) {
	n := newNodes(t)
	for name, c := range map[string]struct {
		do   func(*Source, *surroundings)
		want bool
	}{
		"it has just been found":     {func(*Source, *surroundings) {}, false},
		"it was found long ago":      {func(_ *Source, e *surroundings) { e.pass(5 * time.Second) }, true},
		"memory is sent since now":   {func(s *Source, e *surroundings) { e.pass(time.Minute); s.RecordBegin() }, false},
		"memory is sent for a while": {func(s *Source, e *surroundings) { s.RecordBegin(); e.pass(5*time.Second - 1) }, false},
		"memory is sent for long":    {func(s *Source, e *surroundings) { s.RecordBegin(); e.pass(5 * time.Second) }, true},
		"disks are copied since now": {func(s *Source, e *surroundings) { e.pass(time.Minute); s.RecordDiskProgress(&switchover.Mirrors{}) }, false},
		"disks were copied, memory follows": {func(s *Source, e *surroundings) {
			s.RecordDiskProgress(&switchover.Mirrors{})
			e.pass(5 * time.Second)
			s.RecordBegin()
		}, true},
		"disks are copied for long": {func(s *Source, e *surroundings) {
			s.RecordDiskProgress(&switchover.Mirrors{})
			e.pass(5 * time.Second)
			s.RecordDiskProgress(&switchover.Mirrors{})
		}, true},
		"the guest was sent just now": {func(s *Source, e *surroundings) { e.pass(time.Minute); s.RecordHandover() }, false},
		"the guest was sent long ago": {func(s *Source, e *surroundings) { s.RecordHandover(); e.pass(5 * time.Second); s.RecordHandover() }, true},
		"it was told, and nothing has passed": {func(s *Source, e *surroundings) {
			e.pass(time.Minute)
			s.RecordProgressWrite(e.now())
			e.pass(4 * time.Second)
		}, false},
		"it was told, and is to be again": {func(s *Source, e *surroundings) { s.RecordProgressWrite(e.now()); e.pass(5 * time.Second) }, true},
	} {
		s := n.source()
		c.do(s, n.here)
		if got := s.ProgressDue(n.here.now()); got != c.want {
			t.Errorf("%s: it is due: %v", name, got)
		}
		s.Close()
	}
}

func TestTheTargetKnowsWhetherQEMUWasMarked(t *testing.T) {
	n := newNodes(t)
	target := n.target("node1", noQEMU)
	for _, unmarked := range []bool{false, true, false} {
		if target.RecordUnmarked(unmarked); atTarget(target).Unmarked != unmarked {
			t.Errorf("unmarked is %v, want %v", !unmarked, unmarked)
		}
	}
}

func socket(t *testing.T) (path string, listener *net.UnixListener) {
	t.Helper()
	dir, err := os.MkdirTemp("", "qemu") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "s")
	if listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: path}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return path, listener
}

// Forward expects such a listener.
type accepting struct{ *net.UnixListener }

func (a accepting) Accept() (*net.UnixConn, error) { return a.AcceptUnix() }

func anybody(*net.UnixConn) error { return nil }

func TestAStreamReachesTheOtherQEMUAndEndsWithTheMigration(t *testing.T) {
	n := newNodes(t)
	to, qemuThere := socket(t)
	from, qemuHere := socket(t)
	n.target("node1", func(context.Context) (*net.UnixConn, error) {
		return net.DialUnix("unix", nil, &net.UnixAddr{Name: to})
	})
	source := n.source()
	source.Forward(migrationwire.Stream, accepting{qemuHere}, anybody)
	if !source.Forwards(migrationwire.Stream) || !atSource(source).Streams {
		t.Error("the source does not know that it passes streams on")
	}
	out, err := net.Dial("unix", from)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := io.WriteString(out, "memory\n"); err != nil {
		t.Fatal(err)
	}
	_ = qemuThere.SetDeadline(time.Now().Add(patience))
	in, err := qemuThere.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	_ = in.SetDeadline(time.Now().Add(patience))
	if line, err := bufio.NewReader(in).ReadString('\n'); err != nil || line != "memory\n" {
		t.Fatalf("the other QEMU reads %q, %v", line, err)
	}
	source.Close()
	n.here.ends()
	if _, err := in.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the stream goes on after the migration: %v", err)
	}
	if conn, err := net.Dial("unix", from); err == nil {
		_ = conn.Close()
		t.Error("QEMU can still connect after the migration")
	}
}

func TestASocketThatEndsIsLogged(t *testing.T) {
	s, here := silent(t)
	defer s.Close()
	_, listener := socket(t)
	_ = listener.Close()
	s.Forward(migrationwire.Stream, accepting{listener}, anybody)
	here.ends()
	if !here.logged(`the streams of a migration have ended`) || !here.logged(`"migration"="m"`) {
		t.Errorf("logged is %q", here.lines)
	}
}

// The time of the stop counts, not that since the guest's time was over.
func TestAGuestIsStoppedForOnlySoLong(t *testing.T) {
	s, here := silent(t)
	defer s.Close()
	s.forwards[migrationwire.Stream] = &migrationproxy.Forward{}
	limits := switchover.Limits{Completion: time.Minute, Pause: true}
	decides := func() switchover.ConvergenceAction {
		f := switchover.SourceFacts{Begun: true}
		s.RecordMemoryProgress(switchover.Sample{Elapsed: 24 * time.Hour, Transferred: 1})
		s.AddFacts(&f, limits)
		return f.Convergence.Action
	}
	for i, c := range []struct {
		stopped bool
		pass    time.Duration
		want    switchover.ConvergenceAction
	}{
		{false, time.Hour, switchover.ConvergeByPause}, {true, 0, switchover.ConvergeByPause}, {true, 150*time.Second - 1, switchover.ConvergeByPause},
		{true, 1, switchover.GiveUp}, {false, 0, switchover.ConvergeByPause}, {true, 0, switchover.ConvergeByPause},
	} {
		here.pass(c.pass)
		if s.RecordPaused(c.stopped); decides() != c.want {
			t.Errorf("step %d: it decides %q, want %q", i, decides(), c.want)
		}
	}
}
