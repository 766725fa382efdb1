// Package launcher is virt-launcher: it starts QEMU with virt-handler's machine, shuts it down gracefully, and reports
// how it ended.
//
// It owns the QEMU process and the facts about its end, the inspection of disk images in the pod, and virt-handler's
// socket. It lives as long as the guest, and every VM pays for its memory: it must not import Kubernetes or API types,
// nor net/http, and must not decide anything about the machine.
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
	"drydock.dev/drydock/internal/contracts/logline"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
)

// Config has a launcher's paths.
type Config struct {
	Dir            string
	QEMU           string
	TPM            string
	Share          string // virtiofsd
	TerminationLog string // the file with the termination message for the kubelet
	Log            io.Writer
	ConsoleLog     string // the folder of the FIFO for the serial console, or ""
	LogFormat      logline.Format
	VMI            logline.Object // the guest's, for the log
}

// DefaultConfig returns the Config inside a launcher pod.
func DefaultConfig() Config {
	return Config{
		Dir:            layout.PrivateDir,
		QEMU:           layout.QEMUBinary,
		TPM:            layout.TPMBinary,
		Share:          layout.ShareBinary,
		TerminationLog: layout.TerminationLog,
		Log:            os.Stderr,
	}
}

const (
	exitOK     = 0
	exitFailed = 1
)

// forceAfter limits the command quit, which flushes QEMU's images.
const forceAfter = 5 * time.Second

// Run runs the launcher until the guest's end. It returns the exit code: 0 if the guest ended, 1 if it failed.
func Run(ctx context.Context, config Config) (int, error) {
	// Children are reaped until the end, also after ctx.
	reaping, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &launcher{
		config: config, grace: defaultGrace,
		events: make(chan func(), 1), ended: make(chan struct{}),
		children: newReaper(), state: launch.State{Phase: launch.PhaseWaiting, Quiesces: true},
	}
	defer l.wait.Wait()
	defer l.disconnectPeer()
	defer close(l.ended)
	defer cancel()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	l.spawn(func() { l.children.run(reaping) })
	var err error
	if l.console, err = newConsole(config.ConsoleLog, config.log().printf); err != nil {
		return exitFailed, err
	}
	defer l.console.close()
	l.state.LogsConsole = l.console != nil
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
	probes, err := listen(filepath.Join(config.Dir, layout.ProbeSocket))
	if err != nil {
		return exitFailed, err
	}
	defer probes.Close()
	l.spawn(func() { l.serveProbes(probes) })
	states, err := listen(filepath.Join(config.Dir, layout.StateSocket))
	if err != nil {
		return exitFailed, err
	}
	defer states.Close()
	l.spawn(func() { l.serveStates(states) })
	exit := l.drive(ctx, signals)
	l.endCompanions()
	// The kubelet gets the end, too: virt-handler may not run.
	l.logf("QEMU has ended: %s %s", exit.Reason, exit.Message)
	l.state.Phase, l.state.Exit, l.state.ExitedAt = launch.PhaseExited, &exit, time.Now()
	l.send(launch.Message{Event: &launch.Event{Exited: &exit, ExitedAt: l.state.ExitedAt}})
	if err := writeTerminationLog(l.config.TerminationLog, exit); err != nil {
		return exitFailed, err
	}
	if exit.Reason.Failed() {
		return exitFailed, nil
	}
	return exitOK, nil
}

// defaultGrace is for a SIGTERM before Start.
const defaultGrace = 30 * time.Second

// launcher belongs to the goroutine of drive; others pass functions to post.
type launcher struct {
	config   Config
	children *reaper
	wait     sync.WaitGroup
	events   chan func()
	ended    chan struct{}

	state launch.State
	guest guest
	qemu  *process
	// companions are started before QEMU: swtpm, and virtiofsd for each share.
	companions []*companion
	metrics    *metrics
	console    *console
	grace      time.Duration
	starting   []func(error) // replies to Start until QEMU's monitor answers
	// deadline fires at end, the end of the grace period of a QEMU that was asked to end.
	deadline <-chan time.Time
	end      time.Time
	peer     *peer // virt-handler
	// abandoned fires when the guest has been stopped for a migration for too long without virt-handler.
	abandoned <-chan time.Time
	holdState holdState
	exit      *launch.Exit
}

func (l *launcher) spawn(f func()) {
	l.wait.Add(1)
	go func() {
		defer l.wait.Done()
		f()
	}()
}

// post passes f to the driver, or drops it after the launcher's end.
func (l *launcher) post(f func()) {
	select {
	case l.events <- f:
	case <-l.ended:
	}
}

// drive makes all decisions in one goroutine, and returns how QEMU ended.
func (l *launcher) drive(ctx context.Context, signals <-chan os.Signal) launch.Exit {
	for l.exit == nil {
		select {
		case f := <-l.events:
			f()
		case s := <-signals:
			l.logf("received %s", s)
			l.stop(l.grace)
		case <-l.deadline:
			// QEMU ends without the guest.
			l.deadline = nil
			l.guest.forced = true
			l.spawn(func() { l.qemu.quit(forceAfter) })
		case <-l.abandoned:
			// Canceling has no effect if QEMU has completed the handover.
			l.abandoned = nil
			l.guest.migration = ""
			l.logf("the guest has been stopped for a migration and no virt-handler is connected: canceling the migration")
			l.spawn(func() { l.qemu.command("migrate_cancel") })
		case <-l.holdState.timer:
			l.holdState.timer, l.holdState.at = nil, time.Time{}
			l.runAction(l.holdState.Tick(time.Now()))
		case <-ctx.Done():
			l.stop(0)
			ctx = context.WithoutCancel(ctx)
		}
		switch {
		case l.peer != nil || !l.guest.handsOver():
			l.abandoned = nil
		case l.abandoned == nil:
			l.abandoned = time.After(migrationstatus.Unattended)
		}
		if until := l.holdState.Until(); !until.Equal(l.holdState.at) {
			l.holdState.at, l.holdState.timer = until, nil
			if !until.IsZero() {
				l.holdState.timer = time.After(time.Until(until))
			}
		}
		l.sendFrozen()
		l.sendArrival()
	}
	return *l.exit
}

func (l *launcher) logf(format string, args ...any) {
	l.config.log().printf(format, args...)
}

// A later start, from another connection, gets the first answer.
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
			event: func(name string, data []byte) {
				l.post(func() {
					l.guest.recordEvent(name, data)
					l.runAction(l.holdState.Event(name, data, layout.AgentPort, time.Now()))
				})
			},
			ended: func(status exitStatus) {
				l.post(func() {
					exit := l.guest.exit(status)
					for _, c := range l.companions {
						c.explain(&exit)
					}
					l.answerStart(fmt.Errorf("starting QEMU: %s", exit.Message))
					l.exit = &exit
				})
			},
		})
	})
}

// The companions and the metrics disk must exist before QEMU.
func (l *launcher) startProcesses(request *launch.Start) (*process, error) {
	if request.TPM != nil {
		if err := l.accompany(startTPM(l.config, request.TPM, l.children)); err != nil {
			return nil, err
		}
	}
	for _, share := range request.Shares {
		if err := l.accompany(startShare(l.config, share, l.children)); err != nil {
			return nil, err
		}
	}
	if request.DownwardMetrics != nil {
		var err error
		log := func(text string) { l.post(func() { l.logf("%s", text) }) }
		if l.metrics, err = newMetrics(l.config, request.DownwardMetrics, log); err != nil {
			return nil, err
		}
	}
	var inherited []*os.File
	if l.console != nil {
		input, err := l.console.input(l.spawn)
		if err != nil {
			return nil, err
		}
		defer input.Close()
		inherited = append(inherited, input)
	}
	return startProcess(l.config.QEMU, request.Args, l.config.log().of("qemu"), l.children, inherited...)
}

func (l *launcher) started() {
	l.guest.started = true
	l.state.Phase, l.state.Recovers = launch.PhaseRunning, l.qemu.client.OutOfBand()
	l.answerStart(nil)
	l.serveMetrics()
	if l.guest.stopping && !l.guest.graceless {
		// SIGTERM came while QEMU was starting.
		l.spawn(l.qemu.powerButton)
	}
}

func (l *launcher) answerStart(err error) {
	for _, answer := range l.starting {
		answer(err)
	}
	l.starting = nil
}

// stop asks the guest to end within the grace period; of two periods, the one that ends first counts. Without one, and for
// a guest that has not arrived or has left, it ends QEMU at once.
func (l *launcher) stop(grace time.Duration) {
	if l.qemu == nil {
		l.exit = &launch.Exit{Reason: launch.ReasonHostShutdown, Code: 0, Incoming: launch.IncomingNeverRan}
		return
	}
	if l.guest.absent() {
		grace = 0 // no guest to react to the button
	}
	// A guest that is held still can't react to the button.
	l.runAction(l.holdState.Break("the guest is being ended", time.Now()))
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
