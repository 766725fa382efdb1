// Package launcher is virt-launcher: it starts QEMU with the machine that
// virt-handler sends, ends it gracefully, and reports how it ended.
//
// It owns the QEMU process and what is known about its end, the disk images'
// inspection inside the pod, and the socket that virt-handler talks to. It is
// the only process that lives as long as the guest, and its memory is part of
// every VM's price: it must not import Kubernetes or API types, nor net/http,
// and it decides nothing about the machine.
package launcher

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
)

// Config is where a launcher finds its surroundings.
type Config struct {
	// Dir is the folder of its socket.
	Dir string
	// QEMU is the program that is started.
	QEMU string
	// TPM is the program that emulates a guest's TPM.
	TPM string
	// TerminationLog is the file that the kubelet reads the last word from.
	TerminationLog string
	// Log takes the launcher's own lines and QEMU's.
	Log io.Writer
}

// DefaultConfig is right inside a launcher pod.
func DefaultConfig() Config {
	return Config{
		Dir:            layout.PrivateDir,
		QEMU:           layout.QEMUBinary,
		TPM:            layout.TPMBinary,
		TerminationLog: layout.TerminationLog,
		Log:            os.Stderr,
	}
}

// Exit codes of the launcher.
const (
	exitOK     = 0
	exitFailed = 1
)

// forceAfter is how long QEMU has to follow quit, which flushes its images,
// before it is killed.
const forceAfter = 5 * time.Second

// Run is the launcher's whole life. It returns the process's exit code: 0 when
// the guest came to an end, 1 when it failed.
func Run(ctx context.Context, config Config) (int, error) {
	// The children are reaped until the end, also when ctx has ended.
	reaping, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &launcher{
		config: config, grace: defaultGrace,
		events: make(chan func(), 1), ended: make(chan struct{}),
		children: newReaper(), state: launch.State{Phase: launch.PhaseWaiting, Quiesces: true},
	}
	defer l.wait.Wait()
	defer l.hangUp()
	defer close(l.ended)
	defer cancel()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	l.spawn(func() { l.children.run(reaping) })
	listener, err := listen(filepath.Join(config.Dir, layout.LauncherSocket))
	if err != nil {
		return exitFailed, err
	}
	defer listener.Close()
	l.spawn(func() { l.accept(listener) })
	freezer, err := listen(filepath.Join(config.Dir, layout.FreezerSocket))
	if err != nil {
		return exitFailed, err
	}
	defer freezer.Close()
	l.spawn(func() { l.serveFreezer(freezer) })
	exit := l.drive(ctx, signals)
	if l.tpm != nil {
		l.endTPM()
	}
	if err := l.leave(exit); err != nil {
		return exitFailed, err
	}
	if exit.Reason.Failed() {
		return exitFailed, nil
	}
	return exitOK, nil
}

// defaultGrace serves a SIGTERM that comes before Start has named a period.
const defaultGrace = 30 * time.Second

// launcher is one life. Its fields belong to the goroutine of drive; others
// hand it functions through post.
type launcher struct {
	config   Config
	children *reaper
	wait     sync.WaitGroup
	events   chan func()
	ended    chan struct{}

	state launch.State
	guest guest
	qemu  *process
	// tpm emulates the guest's TPM; nil for a guest without one.
	tpm *tpm
	// metrics tells the guest figures of its host; nil for a guest that is told none.
	metrics *metrics
	grace   time.Duration
	// starting are the answers to Start that wait for QEMU's monitor.
	starting []func(error)
	// deadline runs out at end, when the guest has had its grace period; it is
	// nil until QEMU is asked to end.
	deadline <-chan time.Time
	end      time.Time
	// peer is virt-handler's connection. abandoned runs out when the guest has been stopped for
	// a migration, and nobody connected, for too long; it is nil while one of both is not so.
	peer      *peer
	abandoned <-chan time.Time
	still     still
	exit      *launch.Exit
}

// spawn starts a goroutine that ends with the launcher.
func (l *launcher) spawn(f func()) {
	l.wait.Add(1)
	go func() {
		defer l.wait.Done()
		f()
	}()
}

// post hands f to the driver; it is dropped when the launcher has ended.
func (l *launcher) post(f func()) {
	select {
	case l.events <- f:
	case <-l.ended:
	}
}

// drive is the one goroutine that decides. It returns how QEMU ended.
func (l *launcher) drive(ctx context.Context, signals <-chan os.Signal) launch.Exit {
	for l.exit == nil {
		select {
		case f := <-l.events:
			f()
		case s := <-signals:
			l.logf("received %s", s)
			l.stop(l.grace)
		case <-l.deadline:
			l.force()
		case <-l.abandoned:
			l.cancelMigration()
		case <-l.still.timer:
			l.still.timer, l.still.at = nil, time.Time{}
			l.hold(l.still.Tick(time.Now()))
		case <-ctx.Done():
			l.stop(0)
			ctx = context.WithoutCancel(ctx)
		}
		l.watchHandover()
		l.watchHold()
		l.tellFrozen()
	}
	return *l.exit
}

// watchHandover sets the time at which a migration is canceled that nobody finishes, or takes it
// back (decision 296).
func (l *launcher) watchHandover() {
	switch {
	case l.peer != nil || !l.guest.handsOver():
		l.abandoned = nil
	case l.abandoned == nil:
		l.abandoned = time.After(migrationstatus.Unattended)
	}
}

// cancelMigration has the guest go on here. If QEMU has handed it over meanwhile, the
// cancellation does nothing.
func (l *launcher) cancelMigration() {
	l.abandoned = nil
	l.guest.migration = ""
	l.logf("the guest has been stopped for a migration and no virt-handler is connected: canceling the migration")
	l.spawn(func() { l.qemu.command("migrate_cancel") })
}

// leave makes the end known: to virt-handler, and to the kubelet for when
// there is no virt-handler.
func (l *launcher) leave(exit launch.Exit) error {
	l.logf("QEMU has ended: %s %s", exit.Reason, exit.Message)
	l.state.Phase, l.state.Exit = launch.PhaseExited, &exit
	l.tell(launch.Message{Event: &launch.Event{Exited: &exit}})
	return writeTerminationLog(l.config.TerminationLog, exit)
}

func (l *launcher) logf(format string, args ...any) {
	fmt.Fprintf(l.config.Log, "%s virt-launcher: %s\n", time.Now().UTC().Format(time.RFC3339Nano), fmt.Sprintf(format, args...))
}

// start starts QEMU once. A later Start, from another connection, gets the
// same answer.
func (l *launcher) start(request *launch.Start, answer func(error)) {
	switch {
	case l.guest.started:
		answer(nil)
		return
	case l.qemu != nil:
		l.starting = append(l.starting, answer)
		return
	}
	l.grace = time.Duration(request.GracePeriodSeconds) * time.Second
	l.guest.incoming = request.Incoming
	process, err := l.startProcesses(request)
	if err != nil {
		answer(err)
		l.exit = &launch.Exit{Reason: launch.ReasonStartFailed, Code: -1, Message: err.Error(), Incoming: launch.IncomingNeverRan}
		return
	}
	l.qemu = process
	l.state.QEMUPID = process.pid
	l.starting = append(l.starting, answer)
	l.spawn(func() {
		process.watch(watcher{
			ready: func() { l.post(l.started) },
			event: func(name string, data []byte) { l.post(func() { l.heard(name, data) }) },
			ended: func(status exitStatus) { l.post(func() { l.exited(status) }) },
		})
	})
}

// startProcesses starts QEMU, and before it the TPM that it connects to. The disk that tells of the host is there before, too.
func (l *launcher) startProcesses(request *launch.Start) (*process, error) {
	if request.TPM != nil {
		var err error
		if l.tpm, err = startTPM(l.config, request.TPM, l.children); err != nil {
			return nil, err
		}
		l.spawn(func() { l.watchTPM(l.tpm) })
	}
	if request.DownwardMetrics != nil {
		var err error
		log := func(text string) { l.post(func() { l.logf("%s", text) }) }
		if l.metrics, err = newMetrics(l.config, request.DownwardMetrics, log); err != nil {
			return nil, err
		}
	}
	return startProcess(l.config.QEMU, request.Args, l.config.Log, l.children)
}

// heard takes note of one of QEMU's events.
func (l *launcher) heard(name string, data []byte) {
	l.guest.event(name, data)
	l.hold(l.still.Event(name, data, layout.AgentPort, time.Now()))
}

func (l *launcher) started() {
	l.guest.started = true
	l.state.Phase = launch.PhaseRunning
	l.answerStart(nil)
	l.serveMetrics()
	if l.guest.stopping && !l.guest.graceless {
		// SIGTERM came while QEMU was starting.
		l.spawn(l.qemu.powerButton)
	}
}

func (l *launcher) exited(status exitStatus) {
	exit := l.guest.exit(status)
	if l.tpm != nil {
		l.tpm.explain(&exit)
	}
	l.answerStart(fmt.Errorf("starting QEMU: %s", exit.Message))
	l.exit = &exit
}

func (l *launcher) answerStart(err error) {
	for _, answer := range l.starting {
		answer(err)
	}
	l.starting = nil
}

// stop asks the guest to end and gives it the grace period; none means at once, as it does for a
// guest that has not arrived, or has left.
// Of several grace periods the one that ends first counts.
func (l *launcher) stop(grace time.Duration) {
	if l.qemu == nil {
		l.exit = &launch.Exit{Reason: launch.ReasonHostShutdown, Code: 0, Incoming: launch.IncomingNeverRan}
		return
	}
	if l.guest.absent() {
		grace = 0 // nobody is there to follow the button
	}
	// A guest that stands still can't follow the button either.
	l.hold(l.still.Break("the guest is being ended", time.Now()))
	end := time.Now().Add(grace)
	if l.guest.stopping && (l.guest.forced || !end.Before(l.end)) {
		return
	}
	if !l.guest.stopping && grace > 0 && l.guest.started {
		l.spawn(l.qemu.powerButton)
	}
	l.guest.stopping, l.guest.graceless = true, grace <= 0
	l.end, l.deadline = end, time.After(grace)
}

// force ends QEMU without the guest: by quit first, so that it closes its
// images in order, then by a signal.
func (l *launcher) force() {
	l.deadline = nil
	l.guest.forced = true
	l.spawn(func() { l.qemu.quit(forceAfter) })
}
