package guest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/power"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// These tests use a model of QEMU's monitor (qmptest); conformance tests compare it with QEMU.

// patience is how long a test waits for an event that comes soon.
const patience = 4 * time.Minute

// clock is a clock that only a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// watched is a Guest with its reports to the owner.
type watched struct {
	*Guest
	t     *testing.T
	clock *clock
	woken chan struct{}
}

var disks = []v1.Disk{{Name: "root"}, {Name: "data"}}

// open attaches to a QEMU.
func open(t *testing.T, qemu *qmptest.Server) *watched {
	t.Helper()
	conn, ok := qemu.Dial().(*net.UnixConn)
	if !ok {
		t.Fatal("the monitor is no unix socket")
	}
	return watch(t, conn)
}

// watch attaches to the QEMU whose monitor is at the other end.
func watch(t *testing.T, conn *net.UnixConn) *watched {
	t.Helper()
	w := &watched{t: t, clock: &clock{now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}, woken: make(chan struct{}, 1)}
	g, err := Open(t.Context(), conn, Env{
		OnEvent: func(qmp.Event) bool { return false }, Now: w.clock.Now, Log: logr.Discard(),
		Wake: func() {
			select {
			case w.woken <- struct{}{}:
			default:
			}
		},
	}, disks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	w.Guest = g
	return w
}

// await refreshes whenever the owner is woken, until the facts are as wanted.
func (w *watched) await(what string, reached func(Facts) bool) Facts {
	w.t.Helper()
	for timeout := time.After(patience); ; {
		w.Refresh(w.t.Context(), disks)
		if f := w.Observe(); reached(f) {
			return f
		}
		select {
		case <-w.woken:
		case <-time.After(10 * time.Millisecond): // QEMU does not report progress
			w.invalidate()
		case <-timeout:
			w.t.Fatalf("waited for %s in vain: %+v", what, w.Observe())
		}
	}
}

func in(state string) func(Facts) bool { return func(f Facts) bool { return f.RunState == state } }

// QEMU is asked once which accelerator the guest has.
func TestWhatAGuestRunsWith(t *testing.T) {
	for name, kvm := range map[string]bool{"with KVM": true, "emulated": false} {
		qemu := qmptest.New(t)
		asked := 0
		qemu.Override("query-kvm", func(json.RawMessage) (any, error) {
			asked++
			return map[string]bool{"present": true, "enabled": kvm}, nil
		})
		w := open(t, qemu)
		qemu.EnterRunState(runstate.Running, "RESUME")
		if f := w.await("the guest to run", in(runstate.Running)); f.KVM != kvm || asked != 1 {
			t.Errorf("%s: KVM %v, asked for %d times", name, f.KVM, asked)
		}
	}
}

// inState returns a QEMU whose guest is in a run state.
func inState(t *testing.T, state string) *qmptest.Server {
	qemu := qmptest.New(t)
	qemu.SetRunState(state)
	return qemu
}

func (w *watched) Pause(ctx context.Context) error   { return w.Obey(ctx, power.Pause) }
func (w *watched) Unpause(ctx context.Context) error { return w.Obey(ctx, power.Unpause) }
func (w *watched) Reset(ctx context.Context) error   { return w.Obey(ctx, power.Reset) }
func (w *watched) Reboot(ctx context.Context) error  { return w.Obey(ctx, power.Reboot) }

// refusalOf returns the message of a Refusal; "" for success.
func refusalOf(t *testing.T, err error) string {
	t.Helper()
	var refusal *power.Refusal
	if err != nil && !errors.As(err, &refusal) {
		t.Fatalf("%v is no refusal", err)
	}
	if err == nil {
		return ""
	}
	return refusal.Message
}

func TestAGuestIsPausedAndUnpaused(t *testing.T) {
	qemu := inState(t, runstate.Running)
	w := open(t, qemu)
	for _, s := range []struct {
		verb          func(context.Context) error
		refusal, then string
	}{
		{w.Unpause, "VMI is not paused", runstate.Running},
		{w.Pause, "", "paused"},
		{w.Pause, "VMI is already paused", "paused"},
		{w.Reset, "", runstate.Prelaunch},
		{w.Pause, "VMI is already paused", runstate.Prelaunch},
		{w.Unpause, "", runstate.Running},
		{w.Reset, "", runstate.Running},
	} {
		if got := refusalOf(t, s.verb(t.Context())); got != s.refusal {
			t.Fatalf("a guest that is %s: %q, want %q", qemu.RunState(), got, s.refusal)
		}
		w.await("run state "+s.then, in(s.then))
	}
}

// TestVerbsInEachRunState checks which verbs work in each run state of the table and in an unknown one. No event has
// reported the state.
func TestVerbsInEachRunState(t *testing.T) {
	for _, state := range append(runstate.All(), runstate.Of("hibernating")) {
		check := func(name string, do func(*watched, context.Context) error, follows bool, message string) {
			t.Helper()
			got := refusalOf(t, do(open(t, inState(t, state.Name)), t.Context()))
			if (got == "") != follows || !follows && got != message {
				t.Errorf("%s in %s: %q; want it to be followed: %v, or else %q", name, state.Name, got, follows, message)
			}
		}
		running, waits := state.Outlook == runstate.Runs, state.Outlook == runstate.Waits
		pause := "VMI cannot be paused: " + state.Message
		if state.Paused {
			pause = "VMI is already paused"
		}
		unpause := "VMI cannot be unpaused: " + state.Message
		if running {
			unpause = "VMI is not paused"
		}
		check("pause", func(w *watched, ctx context.Context) error { return w.Pause(ctx) }, running || state.Name == runstate.IOError, pause)
		check("unpause", func(w *watched, ctx context.Context) error { return w.Unpause(ctx) }, waits, unpause)
		check("reset", func(w *watched, ctx context.Context) error { return w.Reset(ctx) }, running || waits, "VMI cannot be reset: "+state.Message)
		reboot := "VMI cannot be rebooted: " + state.Message
		if state.Paused {
			reboot = "VMI is paused"
		}
		check("reboot", func(w *watched, ctx context.Context) error { return w.Reboot(ctx) }, running, reboot)
		check("pressing keys", func(w *watched, ctx context.Context) error { return w.Obey(ctx, power.PressKeys) }, running, reboot)
	}
}

func TestAnIOErrorStopsAGuest(t *testing.T) {
	qemu := inState(t, runstate.Running)
	qemu.AddDisk(machine.DiskID("data"), 1<<20)
	w := open(t, qemu)
	qemu.FailDisk(machine.DiskID("data"), "nospace")
	f := w.await("an I/O error", in(runstate.IOError))
	if want := []vmihandler.FailedDisk{{Volume: "data", Full: true}}; !f.Stalled || f.Resume || f.After <= 0 || !slices.Equal(f.FailedDisks, want) {
		t.Errorf("known is %+v, want the failed disks %v and when to resume", f, want)
	}
	// The guest is resumed when the delay is over, and fails again at once.
	w.clock.pass(f.After)
	if f = w.Observe(); !f.Resume {
		t.Fatalf("the guest is not to be resumed: %+v", f)
	}
	if err := w.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	qemu.FailDisk(machine.DiskID("data"), "nospace")
	f = w.await("another I/O error", func(f Facts) bool { return f.RunState == runstate.IOError && f.Attempts == 1 })
	if f.Resume || !f.Stalled {
		t.Errorf("known is %+v", f)
	}
	if err := w.Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.await("a guest that runs", in(runstate.Running))
	// The error counts as over when the guest has run for a while.
	if f = w.Observe(); !f.Stalled || len(f.FailedDisks) != 1 {
		t.Errorf("a guest that has just been resumed: %+v", f)
	}
	w.clock.pass(time.Minute)
	if f = w.Observe(); f.Stalled || f.FailedDisks != nil {
		t.Errorf("a guest that has run for a while: %+v", f)
	}
}

// TestAPauseBesidesAnIOError: the pause keeps the guest stopped, and the next virt-handler knows it.
func TestAPauseBesidesAnIOError(t *testing.T) {
	qemu := inState(t, runstate.Running)
	w := open(t, qemu)
	qemu.FailDisk(qmptest.RootDisk, "failed")
	w.await("an I/O error", in(runstate.IOError))
	if err := w.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.await("a pause besides", func(f Facts) bool { return f.PausedByUser })
	w.clock.pass(time.Hour)
	if f := w.Observe(); f.Resume || !qemu.HasObject(machine.PauseMarker) {
		t.Errorf("a guest that its user has paused: %+v", f)
	}
	if err := w.Resume(t.Context()); err != nil || qemu.RunState() != runstate.IOError {
		t.Errorf("it was resumed all the same: %v, %s", err, qemu.RunState())
	}
	if next := open(t, qemu); !next.Observe().PausedByUser {
		t.Errorf("the next virt-handler knows %+v", next.Observe())
	}
	if err := w.Unpause(t.Context()); err != nil || qemu.HasObject(machine.PauseMarker) {
		t.Errorf("unpausing it: %v; its marker is there: %v", err, qemu.HasObject(machine.PauseMarker))
	}
	w.await("a guest that runs", func(f Facts) bool { return f.RunState == runstate.Running && !f.PausedByUser })
}

// TestAnErrorIsFasterThanAPause: the guest's disk, or QEMU itself, fails just before the guest is paused.
func TestAnErrorIsFasterThanAPause(t *testing.T) {
	for state, want := range map[string]string{
		runstate.IOError: "",
		"internal-error": "VMI cannot be paused: " + runstate.Of("internal-error").Message,
		"watchdog":       "VMI is already paused",
	} {
		qemu := inState(t, runstate.Running)
		w := open(t, qemu)
		qemu.Override("stop", func(json.RawMessage) (any, error) {
			qemu.SetRunState(state)
			return nil, nil
		})
		if got := refusalOf(t, w.Pause(t.Context())); got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
		if marked := qemu.HasObject(machine.PauseMarker); marked != (state == runstate.IOError) {
			t.Errorf("%s: QEMU keeps the pause: %v", state, marked)
		}
	}
}

func TestAResetGetsAGuestAwayFromItsDisksError(t *testing.T) {
	qemu := inState(t, runstate.IOError)
	if err := open(t, qemu).Reset(t.Context()); err != nil || qemu.RunState() != runstate.Running {
		t.Errorf("%v; the guest is %s", err, qemu.RunState())
	}
	qemu = inState(t, runstate.IOError)
	qemu.AddObject(machine.MarkerType, machine.PauseMarker)
	if err := open(t, qemu).Reset(t.Context()); err != nil || qemu.RunState() != runstate.Prelaunch {
		t.Errorf("a guest that its user has paused: %v; it is %s", err, qemu.RunState())
	}
}

// halted returns a QEMU that waits for volumes before it runs its CPUs.
func halted(t *testing.T, paused bool) *qmptest.Server {
	qemu := qmptest.New(t)
	qemu.AddObject(machine.MarkerType, machine.WaitMarker)
	if paused {
		qemu.AddObject(machine.MarkerType, machine.PauseMarker)
	}
	return qemu
}

func TestAHaltedGuestIsStarted(t *testing.T) {
	for _, paused := range []bool{false, true} {
		qemu := halted(t, paused)
		w := open(t, qemu)
		if f := w.Observe(); !f.Halted || f.PausedByUser != paused {
			t.Fatalf("known is %+v", f)
		}
		before := len(qemu.Commands())
		started, err := w.Start(t.Context(), []machine.BootIndex{{Device: qmptest.RootDisk, Index: -1}, {Device: qmptest.RootDisk, Index: 2}})
		if err != nil || !started {
			t.Fatalf("%v, %v", started, err)
		}
		want := []string{"qom-list", "query-migrate", "query-jobs", "query-status", "qom-set", "qom-set", "system_reset", "cont", "object-del"}
		state := runstate.Running
		if paused {
			want, state = slices.Delete(want, 7, 8), runstate.Prelaunch
		}
		if got := qemu.Commands()[before:]; !slices.Equal(got, want) {
			t.Errorf("paused %v: QEMU was told %v, want %v", paused, got, want)
		}
		if qemu.RunState() != state || qemu.HasObject(machine.WaitMarker) || qemu.BootIndex(qmptest.RootDisk) != 2 {
			t.Errorf("paused %v: the guest is %s, its marker is there: %v, its place in the boot order is %d",
				paused, qemu.RunState(), qemu.HasObject(machine.WaitMarker), qemu.BootIndex(qmptest.RootDisk))
		}
		w.await("a guest that is not halted", func(f Facts) bool { return !f.Halted && f.RunState == state })
		if started, err := w.Start(t.Context(), nil); err != nil || started {
			t.Errorf("it was started again: %v, %v", started, err)
		}
	}
}

func TestAUserPausesAHaltedGuest(t *testing.T) {
	qemu := halted(t, false)
	w := open(t, qemu)
	for _, s := range []struct {
		verb    func(context.Context) error
		refusal string
		paused  bool
	}{
		{w.Unpause, "VMI is not paused: it waits for volumes before it starts", false},
		{w.Pause, "", true},
		{w.Pause, "VMI is already paused", true},
		{w.Unpause, "", false},
	} {
		if got := refusalOf(t, s.verb(t.Context())); got != s.refusal {
			t.Errorf("%q, want %q", got, s.refusal)
		}
		w.await("what the user wants", func(f Facts) bool { return f.PausedByUser == s.paused && f.Halted })
	}
	if got := refusalOf(t, w.Reboot(t.Context())); got != "VMI cannot be rebooted: it waits for volumes before it starts" {
		t.Errorf("a reboot: %q", got)
	}
	if qemu.Executed("cont") > 0 {
		t.Error("the guest's CPUs were started")
	}
}

// TestTheMarkerOfAGuestThatHasRunIsRemoved: a virt-handler died after it had started the CPUs. The next one removes the
// marker before a verb brings the guest back to prelaunch.
func TestTheMarkerOfAGuestThatHasRunIsRemoved(t *testing.T) {
	qemu := halted(t, false)
	qemu.SetRunState("paused")
	w := open(t, qemu)
	if w.Observe().Halted || qemu.HasObject(machine.WaitMarker) {
		t.Errorf("known is %+v, the marker is there: %v", w.Observe(), qemu.HasObject(machine.WaitMarker))
	}
	qemu.AddObject(machine.MarkerType, machine.WaitMarker)
	if err := w.Reset(t.Context()); err != nil || qemu.HasObject(machine.WaitMarker) {
		t.Errorf("%v; the marker is there: %v", err, qemu.HasObject(machine.WaitMarker))
	}
	w.await("a paused guest", func(f Facts) bool { return f.RunState == runstate.Prelaunch && !f.Halted })
}

// TestAQEMUThatAGuestMovesTo: before the guest's arrival its state is unknown, and the arrival shows that it has run.
func TestAQEMUThatAGuestMovesTo(t *testing.T) {
	source, target := inState(t, runstate.Running), inState(t, runstate.InMigrate)
	target.AddObject(machine.MarkerType, machine.WaitMarker)
	from, to := open(t, source), open(t, target)
	if f := to.Observe(); f.RunState != runstate.InMigrate || f.Halted || f.After <= 0 {
		t.Errorf("of the target is known %+v", f)
	}
	if !target.HasObject(machine.WaitMarker) {
		t.Error("a marker was removed before it was known what it means")
	}
	if f := from.Observe(); f.RunState != runstate.Running {
		t.Errorf("of the source is known %+v", f)
	}
	source.EnterRunState("postmigrate", "STOP")
	target.EnterRunState(runstate.Running, "RESUME")
	from.await("a guest that has moved", in("postmigrate"))
	to.await("a guest that has arrived", in(runstate.Running))
	if target.HasObject(machine.WaitMarker) {
		t.Error("the marker of a guest that runs is still there")
	}
	if got := refusalOf(t, from.Unpause(t.Context())); !strings.Contains(got, "does not continue here") {
		t.Errorf("continuing the source: %q", got)
	}
}

func TestQEMUIsAskedOnlyAfterAnEvent(t *testing.T) {
	qemu := inState(t, runstate.Running)
	w := open(t, qemu)
	before := len(qemu.Commands())
	w.Refresh(t.Context(), disks)
	if got := qemu.Commands()[before:]; len(got) > 0 {
		t.Errorf("without an event QEMU was asked %v", got)
	}
	qemu.EnterRunState("watchdog", "WATCHDOG")
	w.await("the watchdog", in("watchdog"))
	// A state that QEMU leaves without an event is queried repeatedly.
	qemu.EnterRunState("save-vm", "STOP")
	f := w.await("a snapshot", in("save-vm"))
	if f.After != transientPause {
		t.Errorf("QEMU is asked again after %v, want %v", f.After, transientPause)
	}
	qemu.SetRunState(runstate.Running)
	w.await("the end of the snapshot", in(runstate.Running))
}

func TestAQEMUThatHangsOrEnds(t *testing.T) {
	qemu := inState(t, runstate.Running)
	w := open(t, qemu)
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	qemu.Override("query-status", func(json.RawMessage) (any, error) { cancel(); <-release; return nil, errors.New("late") })
	if err := w.Pause(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("pausing a QEMU that hangs: %v", err)
	}
	close(release)
	if !w.Alive() {
		t.Error("a QEMU that hung counts as dead")
	}
	qemu.Exit()
	select {
	case <-w.Done():
	case <-time.After(patience):
		t.Fatal("nobody hears of QEMU's end")
	}
	if w.Alive() {
		t.Error("it counts as alive")
	}
	if err := w.Pause(t.Context()); err == nil {
		t.Error("it was paused")
	}
	w.Refresh(t.Context(), disks)
	if f := w.Observe(); f.RunState != runstate.Running {
		t.Errorf("the last that is known is %+v", f)
	}
}

func TestUsage(t *testing.T) {
	qemu := inState(t, runstate.Running)
	qemu.AddDisk(machine.DiskID("data"), 1<<20)
	u := open(t, qemu).Usage(t.Context(), disks, nil)
	var names []string
	for _, d := range u.Drives {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"data", "root"}, names); diff != "" {
		t.Errorf("drives (-want +got):\n%s", diff)
	}
	// The model is in the test's own process.
	if u.ResidentBytes <= 0 {
		t.Errorf("usage: %+v", u)
	}
}

func TestKeysArePressed(t *testing.T) {
	qemu := inState(t, runstate.Running)
	if err := open(t, qemu).Obey(t.Context(), power.PressKeys); err != nil || qemu.Executed("send-key") != 1 {
		t.Errorf("%v; QEMU was told %v", err, qemu.Commands())
	}
}
