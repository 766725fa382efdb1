// Package guest observes one running QEMU through its monitor: its events, its run state, its state as a migration's
// source or target, and the markers that it stores for virt-handler.
//
// The packages below it command QEMU by subject (runcontrol, handover, diskcopy), after WithCurrentState has queried its
// state; guestusage measures. All state belongs to one QEMU and ends with it. The package must not assume that a VMI has
// only one QEMU, or that a guest runs because its QEMU does, and knows neither a VMI's status nor the API server.
package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Env has a Guest's dependencies.
type Env struct {
	// One goroutine calls OnEvent, which reports whether to wake the owner.
	OnEvent func(qmp.Event) bool
	Wake    func()
	Now     func() time.Time
	Log     logr.Logger
}

// Guest is one QEMU. Only its owner's goroutine queries and commands it. Observe, Alive, Done, Monitor and PID are safe
// for concurrent use.
type Guest struct {
	env     Env
	monitor *qmp.Client
	pid     int // for figures, and for package pinning, which checks whose it is; another process may get it
	kvm     bool
	// machineType is QEMU's own, without an alias.
	machineType string
	resets      chan struct{}

	mu       sync.Mutex
	known    knownState
	stale    bool
	querying bool // Refresh awaits answers
	// silent means that QEMU did not answer the query at queried.
	silent  bool
	queried time.Time
	stopped time.Time // when QEMU stopped the guest; zero if it has run since
	// onRunning is called when QEMU reports that the guest runs; may be nil.
	onRunning func()
}

// Facts is the known state of the guest.
type Facts struct {
	KVM bool
	// MachineType is QEMU's own, without an alias.
	MachineType string

	RunState string
	Stopped  time.Time
	// Stalled means that an I/O error stops the guest, or did a moment ago.
	Stalled     bool
	FailedDisks []vmihandler.FailedDisk
	// PausedByUser means that the guest stays stopped when the disks work again.
	PausedByUser bool
	// Halted means that the CPUs wait for volumes before they first run.
	Halted bool
	// Resume means that the guest should be told to continue now; Attempts counts these commands since an I/O error.
	Resume    bool
	Attempts  int
	Migration Migration
	Jobs      []Job // also ended ones
	// Silent means that the facts are outdated: QEMU did not answer the last query.
	Silent bool
	// After is the delay until the next query; 0 to wait for an event.
	After time.Duration
}

// Open takes over the connection to a QEMU's monitor. disks are from the guest's spec.
func Open(ctx context.Context, conn *net.UnixConn, env Env, disks []v1.Disk) (*Guest, error) {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	g := &Guest{env: env, resets: make(chan struct{}, 1)}
	var err error
	if g.pid, err = podpath.PeerPID(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if g.monitor, err = qmp.New(ctx, conn, g.handleEvent); err != nil {
		return nil, err
	}
	if g.kvm, err = queryKVM(ctx, g.monitor); err == nil {
		g.machineType, err = queryMachineType(ctx, g.monitor)
	}
	if err := errors.Join(err, g.updateState(ctx, disks)); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

func queryKVM(ctx context.Context, monitor *qmp.Client) (bool, error) {
	var answer struct {
		Enabled bool `json:"enabled"`
	}
	if err := monitor.Execute(ctx, "query-kvm", nil, &answer); err != nil {
		return false, fmt.Errorf("asking QEMU whether it uses KVM: %w", err)
	}
	return answer.Enabled, nil
}

// queryMachineType returns the versioned type, also of a machine that was started as QEMU's newest.
func queryMachineType(ctx context.Context, monitor *qmp.Client) (string, error) {
	var kind string
	if err := monitor.Execute(ctx, "qom-get", map[string]any{"path": "/machine", "property": "type"}, &kind); err != nil {
		return "", fmt.Errorf("asking QEMU for its machine type: %w", err)
	}
	return strings.TrimSuffix(kind, "-machine"), nil
}

// Close disconnects from the monitor and waits for OnEvent, which must not call it.
func (g *Guest) Close() { _ = g.monitor.Close() }

// Done is closed when the monitor has ended, for example with QEMU.
func (g *Guest) Done() <-chan struct{} { return g.monitor.Done() }

// Alive reports whether the monitor is connected.
func (g *Guest) Alive() bool {
	select {
	case <-g.monitor.Done():
		return false
	default:
		return true
	}
}

// Monitor returns QEMU's monitor.
func (g *Guest) Monitor() *qmp.Client { return g.monitor }

// Measurable reports whether a query for figures delays nobody. QEMU answers one query at a time, and each would delay
// the switchover of a guest that moves.
func (g *Guest) Measurable() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.stale && !g.querying && !g.silent && g.known.runState != runstate.PausedToMigrate && g.known.migration.measurable()
}

// Markers returns QEMU's markers.
func (g *Guest) Markers() Markers { return Markers{g.monitor} }

// PID returns QEMU's process ID, for figures only, never to act on the process.
func (g *Guest) PID() int { return g.pid }

// Log returns the log of the guest's VMI.
func (g *Guest) Log() logr.Logger { return g.env.Log }

// Resets receives after QEMU has reset the machine.
func (g *Guest) Resets() <-chan struct{} { return g.resets }

// Observe returns the known facts without querying QEMU.
func (g *Guest) Observe() Facts {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.env.Now()
	g.known = g.known.at(now)
	facts := g.known.facts(now)
	facts.KVM, facts.MachineType, facts.Stopped, facts.Silent = g.kvm, g.machineType, g.stopped, g.silent
	if g.silent {
		facts.After = backoff.Sooner(facts.After, max(g.queried.Add(silentPause).Sub(now), transientPause))
	}
	return facts
}

// These events may change the run state.
var changing = []string{
	"STOP", "RESUME", "RESET", "BLOCK_IO_ERROR", "WATCHDOG", "GUEST_PANICKED", "SUSPEND", "WAKEUP", "SHUTDOWN", "MIGRATION",
	jobEvent,
}

const jobEvent = "JOB_STATUS_CHANGE"

// silentPause is the interval of queries to a QEMU that does not answer.
const silentPause = time.Minute

// The monitor's goroutine calls it.
func (g *Guest) handleEvent(e qmp.Event) {
	look := g.env.OnEvent(e)
	if e.Name == "RESET" {
		select {
		case g.resets <- struct{}{}:
		default:
		}
	}
	if e.Name == "RESUME" {
		g.mu.Lock()
		do := g.onRunning
		g.mu.Unlock()
		if do != nil {
			do()
		}
	}
	if slices.Contains(changing, e.Name) {
		look = true
		g.mu.Lock()
		g.stale = true
		g.known.migrates = g.known.migrates || e.Name == "MIGRATION"
		g.stopped = stoppedAfter(g.stopped, e, g.env.Now())
		g.known.copies = g.known.copies || e.Name == jobEvent
		g.mu.Unlock()
	}
	if look {
		g.env.Log.V(1).Info("QEMU reported an event", "event", e.Name)
		g.env.Wake()
	}
}

// Refresh queries QEMU after events: an event may be outdated when it is read.
func (g *Guest) Refresh(ctx context.Context, disks []v1.Disk) {
	g.mu.Lock()
	stale := g.stale || isTransient(g.known.runState) || g.known.migration.UnderWay() || hasActiveJob(g.known.jobs) ||
		g.silent && g.env.Now().Sub(g.queried) >= silentPause
	g.stale, g.querying = false, stale
	g.mu.Unlock()
	if !stale {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	err := g.updateState(ctx, disks)
	g.mu.Lock()
	g.silent, g.querying, g.queried = errors.Is(err, context.DeadlineExceeded), false, g.env.Now()
	g.mu.Unlock()
	if err != nil {
		// QEMU is ending, which an event will say, or is stuck.
		g.env.Log.V(1).Info("QEMU did not say its state", "reason", err.Error())
	}
}

// Invalidate makes the next Refresh query QEMU, and wakes the owner.
func (g *Guest) Invalidate() {
	g.mu.Lock()
	g.stale = true
	g.mu.Unlock()
	g.env.Wake()
}

// Query queries the state for the decision on a command.
func (g *Guest) Query(ctx context.Context) (Observation, error) {
	seen, err := g.queryAll(ctx)
	o := seen.observation()
	o.KVM = g.kvm
	return o, err
}

// WithCurrentState queries the guest's state, calls do with it, and wakes the owner.
func (g *Guest) WithCurrentState(ctx context.Context, do func(context.Context, Observation) error) error {
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	defer g.Invalidate()
	seen, err := g.Query(ctx)
	if err != nil {
		return err
	}
	return do(ctx, seen)
}

// Execute executes a command without a result.
func (g *Guest) Execute(ctx context.Context, command string, args any) error {
	return g.monitor.Execute(ctx, command, args, nil)
}

// ExpectMigration records that QEMU is about to be told to migrate.
func (g *Guest) ExpectMigration() {
	g.mu.Lock()
	g.known.migrates = true
	g.mu.Unlock()
}

// ExpectCopies records that QEMU is about to be told to copy disks.
func (g *Guest) ExpectCopies() {
	g.mu.Lock()
	g.known.copies = true
	g.mu.Unlock()
}

// MayHaveCopies reports whether QEMU may have copies of disks, or their remains.
func (g *Guest) MayHaveCopies() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known.copies || len(g.known.jobs) > 0
}

// CountResume records that the guest is about to be told to continue, and returns the number of attempts.
func (g *Guest) CountResume() (attempts int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known.stall = g.known.stall.AfterResume(g.env.Now())
	return g.known.stall.Attempts()
}

// CallOnRunning sets the function that is called when QEMU reports that the guest runs; nil for none. It must not block.
func (g *Guest) CallOnRunning(do func()) {
	g.mu.Lock()
	g.onRunning = do
	g.mu.Unlock()
}
