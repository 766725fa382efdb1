package connection

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/launcherclient/launchertest"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// patience bounds one short wait.
const patience = 4 * time.Minute

func TestDecide(t *testing.T) {
	exit := &launch.Exit{Reason: launch.ReasonGuestShutdown}
	exited := launch.State{Phase: launch.PhaseExited, Exit: exit}
	runs := launch.State{Phase: launch.PhaseRunning}
	failure := errors.New("nobody listens")
	stopping := &Stopping{Grace: 7}
	for name, c := range map[string]struct {
		seen observation
		want Facts
	}{
		"nothing was tried":                     {observation{}, Facts{}},
		"an attempt is under way":               {observation{pending: true}, Facts{State: vmihandler.LinkPending}},
		"the attempt has failed":                {observation{failure: failure}, Facts{Failure: failure}},
		"virt-launcher is there":                {observation{linked: true, launcher: runs}, Facts{State: vmihandler.LinkUp, Launcher: runs}},
		"it was told to stop the guest":         {observation{linked: true, launcher: runs, stopping: stopping}, Facts{State: vmihandler.LinkUp, Launcher: runs, Stopping: stopping}},
		"it is gone":                            {observation{linked: true, ended: true, launcher: runs, stopping: stopping}, Facts{}},
		"QEMU has ended":                        {observation{linked: true, launcher: runs, exit: exit}, Facts{Launcher: exited, Exit: exit}},
		"QEMU has ended, virt-launcher as well": {observation{linked: true, ended: true, exit: exit}, Facts{Launcher: exited, Exit: exit}},
		"QEMU ended some time ago":              {observation{exit: exit, pending: true}, Facts{Launcher: exited, Exit: exit}},
	} {
		if got := decide(c.seen); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestWhenQEMUEnded(t *testing.T) {
	seen := time.Now()
	for name, c := range map[string]struct{ said, want time.Time }{
		"virt-launcher says it":                         {seen.Add(-time.Minute).Round(0), seen.Add(-time.Minute)},
		"virt-launcher is older and does not":           {time.Time{}, seen},
		"it is a lie, or the node's clock was set back": {seen.Add(time.Hour).Round(0), seen},
	} {
		got := exitTime(c.said, seen)
		if diff := got.Sub(c.want).Abs(); diff > time.Millisecond {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if !strings.Contains(got.String(), " m=") {
			t.Errorf("%s: it has no monotonic clock", name)
		}
	}
}

// The next virt-handler hears of an end that the one before has heard of.
func TestAnEndIsNoYoungerAfterARestart(t *testing.T) {
	o := own(t)
	at := time.Now().Add(-time.Minute)
	o.launcher().SetState(launch.State{Phase: launch.PhaseExited, Exit: &launch.Exit{Reason: launch.ReasonHostShutdown}, ExitedAt: at})
	o.Connect(t.Context(), "p")
	if f := o.await("the end", func(f Facts) bool { return f.Exit != nil }); f.ExitedAt.Sub(at).Abs() > time.Second {
		t.Errorf("QEMU ended at %v, not at %v", f.ExitedAt, at)
	}
}

// A guest that has taken over its virt-launcher must not delay the report of its end.
func TestOnlyTheFirstReportOfAnEndSaysWhen(t *testing.T) {
	o := own(t)
	l := o.launcher()
	o.Connect(t.Context(), "p")
	o.await("a link", up)
	began := time.Now()
	var now time.Time
	o.owner.Now = func() time.Time { return now }
	for i := range 3 {
		now = began.Add(time.Duration(i) * time.Minute)
		reason := launch.Reason(fmt.Sprint(i))
		l.Say(launch.Message{Event: &launch.Event{Exited: &launch.Exit{Reason: reason}, ExitedAt: now}})
		if f := o.await("the end", func(f Facts) bool { return f.Exit != nil && f.Exit.Reason == reason }); f.ExitedAt.Sub(began).Abs() > time.Millisecond {
			t.Errorf("report %d: QEMU ended at %v, %v later", i, f.ExitedAt, f.ExitedAt.Sub(began))
		}
	}
	l.Vanish()
	if f := o.await("the end", func(f Facts) bool { return f.Link == nil }); f.ExitedAt.Sub(began).Abs() > time.Millisecond {
		t.Errorf("after the link: QEMU ended at %v", f.ExitedAt)
	}
}

// owned is a Connection with its owner.
type owned struct {
	*Connection
	t     *testing.T
	env   *Env
	woken chan struct{}
}

func own(t *testing.T) *owned {
	t.Helper()
	watcher, err := podpath.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	o := &owned{t: t, woken: make(chan struct{}, 1)}
	// t.TempDir is too long for a socket.
	pods, err := os.MkdirTemp("", "pods")
	if err != nil {
		t.Fatal(err)
	}
	o.env = &Env{Pods: pods, Watcher: watcher, Belongs: func(*podpath.Peer, types.UID) error { return nil }}
	ctx, cancel := context.WithCancel(context.Background())
	var helpers sync.WaitGroup
	helpers.Go(func() {
		if err := watcher.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	o.Connection = New(o.env, Owner{
		Go: func(f func()) { helpers.Go(f) }, Now: time.Now,
		Wake: func() {
			select {
			case o.woken <- struct{}{}:
			default:
			}
		},
	})
	t.Cleanup(func() {
		o.Close()
		cancel()
		helpers.Wait()
		_ = os.RemoveAll(pods)
	})
	return o
}

// launcher starts the virt-launcher of pod p.
func (o *owned) launcher() *launchertest.Launcher {
	return launchertest.New(o.t, launchertest.Private(o.env.Pods, "p"))
}

// await observes whenever the owner is woken, or the launcher is gone.
func (o *owned) await(what string, reached func(Facts) bool) Facts {
	o.t.Helper()
	for timeout := time.After(patience); ; {
		f := o.Observe()
		if reached(f) {
			return f
		}
		if f.Failure != nil { // a socket exists before its process listens
			o.Connect(o.t.Context(), "p")
		}
		var gone <-chan struct{}
		if f.Link != nil {
			gone = f.Link.Done()
		}
		select {
		case <-o.woken:
		case <-gone:
		case <-time.After(10 * time.Millisecond): // an event on a lasting link wakes nobody
		case <-timeout:
			o.t.Fatalf("waited for %s in vain: %+v", what, f)
		}
	}
}

func up(f Facts) bool { return f.State == vmihandler.LinkUp }

func TestALauncherIsReachedWhenItAppears(t *testing.T) {
	o := own(t)
	o.Connect(t.Context(), "p")
	if f := o.Observe(); f.State != vmihandler.LinkPending {
		t.Errorf("before there is a launcher: %+v", f)
	}
	o.launcher()
	f := o.await("a link", up)
	if f.Link == nil || f.Link.Pod != "p" || f.Launcher.Phase != launch.PhaseWaiting || f.Stopping != nil {
		t.Errorf("known is %+v", f)
	}
	images, err := f.Link.Prepare(t.Context(), []launch.Image{{Name: "root", Source: "/image", Size: 7 << 20}})
	if err != nil || images["root"].VirtualSize != 7<<20 {
		t.Errorf("images: %+v, %v", images, err)
	}
	if err := f.Link.Start(t.Context(), launch.Start{Args: []string{"-S"}}); err != nil {
		t.Error(err)
	}
	if f := o.Observe(); f.Launcher.Phase != launch.PhaseRunning {
		t.Errorf("after the start: %+v", f)
	}
	if text, err := f.Link.ResolvConf(); err != nil || text == "" {
		t.Errorf("DNS settings %q, %v", text, err)
	}
}

func TestALauncherIsToldToStop(t *testing.T) {
	o := own(t)
	l := o.launcher()
	asked := make(chan launch.Stop, 1)
	l.Stopped = func(stop launch.Stop) { asked <- stop }
	o.Connect(t.Context(), "p")
	f := o.await("a link", up)
	failed := make(chan error, 1)
	f.Link.Stop(t.Context(), launch.Stop{GracePeriodSeconds: 7}, func(err error) { failed <- err })
	if f := o.Observe(); f.Stopping == nil || f.Stopping.Grace != 7 || time.Since(f.Stopping.Since) > patience {
		t.Errorf("after the stop: %+v", f)
	}
	select {
	case stop := <-asked:
		if stop.GracePeriodSeconds != 7 || len(l.Requests()) != 1 {
			t.Errorf("virt-launcher was asked %+v", l.Requests())
		}
	case <-time.After(patience):
		t.Fatal("virt-launcher was not asked to stop")
	}
	l.Exit(launch.Exit{Reason: launch.ReasonHostShutdown})
	f = o.await("the end", func(f Facts) bool { return f.Exit != nil && f.Link == nil })
	if f.Launcher.Phase != launch.PhaseExited || f.Exit.Reason != launch.ReasonHostShutdown || f.Stopping != nil || f.State != vmihandler.LinkNone {
		t.Errorf("after the end: %+v", f)
	}
	select {
	case err := <-failed:
		t.Errorf("a stop that was answered has failed: %v", err)
	default:
	}
}

func TestALauncherThatVanishesIsReachedAgain(t *testing.T) {
	o := own(t)
	l := o.launcher()
	o.Connect(t.Context(), "p")
	f := o.await("a link", up)
	f.Link.Stop(t.Context(), launch.Stop{}, func(error) {})
	l.Vanish()
	if f := o.await("its end", func(f Facts) bool { return f.Link == nil }); f.State != vmihandler.LinkNone || f.Exit != nil || f.Stopping != nil {
		t.Errorf("known is %+v", f)
	}
	// Its successor may not have been asked yet.
	if err := os.Remove(filepath.Join(launchertest.Private(o.env.Pods, "p"), layout.LauncherSocket)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	o.launcher().SetState(launch.State{Phase: launch.PhaseRunning})
	o.Connect(t.Context(), "p")
	if f := o.await("another link", up); f.Launcher.Phase != launch.PhaseRunning || f.Stopping != nil {
		t.Errorf("known is %+v", f)
	}
}

func TestWhoDoesNotBelongToThePodIsNotTalkedTo(t *testing.T) {
	o := own(t)
	stranger := errors.New("the process is in no cgroup of the pod")
	o.env.Belongs = func(peer *podpath.Peer, pod types.UID) error {
		if pod != "p" || peer.PID != os.Getpid() {
			t.Errorf("process %d of pod %s is judged", peer.PID, pod)
		}
		return stranger
	}
	l := o.launcher()
	o.Connect(t.Context(), "p")
	f := o.await("a failure", func(f Facts) bool { return f.Failure != nil })
	if !errors.Is(f.Failure, stranger) || f.Link != nil || f.State != vmihandler.LinkNone {
		t.Errorf("known is %+v", f)
	}
	if f := o.Observe(); f.Failure != nil {
		t.Errorf("a failure is reported twice: %v", f.Failure)
	}
	if got := l.Requests(); len(got) > 0 {
		t.Errorf("it was asked %+v", got)
	}
}

// QEMU connects to virt-handler's socket; another process that can see it must be refused.
func TestASocketInThePodIsForThePodsProcesses(t *testing.T) {
	o := own(t)
	stranger := errors.New("the process is in no cgroup of the pod")
	refuse := false
	o.env.Belongs = func(peer *podpath.Peer, pod types.UID) error {
		if pod != "p" || peer.PID != os.Getpid() {
			t.Errorf("process %d of pod %s is judged", peer.PID, pod)
		}
		if refuse {
			return stranger
		}
		return nil
	}
	o.launcher()
	o.Connect(t.Context(), "p")
	link := o.await("a link", up).Link
	listener, err := link.Listen(t.Context(), layout.MigrationSocket, os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	conn, err := link.Dial(t.Context(), layout.MigrationSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = accepted.Close() }()
	if err := link.Admit(accepted); err != nil {
		t.Errorf("a process of the pod: %v", err)
	}
	refuse = true
	if err := link.Admit(accepted); !errors.Is(err, stranger) {
		t.Errorf("a process of another pod: %v", err)
	}
}

func TestASocketThatIsNoneIsAFailure(t *testing.T) {
	o := own(t)
	private := launchertest.Private(o.env.Pods, "p")
	if err := os.MkdirAll(private, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", filepath.Join(private, layout.LauncherSocket)); err != nil {
		t.Fatal(err)
	}
	o.Connect(t.Context(), "p")
	f := o.await("a failure", func(f Facts) bool { return f.Failure != nil })
	if !strings.Contains(f.Failure.Error(), "no socket") && !strings.Contains(f.Failure.Error(), "connecting to virt-launcher") {
		t.Errorf("the failure is %v", f.Failure)
	}
}
