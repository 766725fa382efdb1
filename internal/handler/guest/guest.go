// Package guest is one QEMU that runs, through its monitor: its run state, what QEMU keeps
// for virt-handler (markers), the power verbs, and its figures.
//
// Everything that it knows belongs to that QEMU and ends with it. It must not assume that
// a VMI has one QEMU, or that a guest runs because its QEMU does: QEMU may be the target of a
// migration. It knows no VMI's status and no API server; whoever owns it decides when it is
// asked and what follows (package guestlifecycle).
//
// Observe gives what is known as values. What is to be remembered (memory.go) and what a
// verb comes to (decide.go) are pure functions; the rest asks and tells QEMU.
package guest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/backoff"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
)

// commandTimeout bounds a QMP command that QEMU answers at once; its main loop
// may be busy with storage for a while.
const commandTimeout = 10 * time.Second

// Refusal is why a verb can't be done in the state that the guest is in: a sentence for
// whoever asked.
type Refusal struct{ Message string }

func (r *Refusal) Error() string { return r.Message }

// Env is what a Guest needs of its surroundings.
type Env struct {
	// OnEvent is called with each event of QEMU's, from one goroutine, and reports whether
	// the owner is to look at what has changed.
	OnEvent func(qmp.Event) bool
	// Wake is called when there is something to look at.
	Wake func()
	Now  func() time.Time
	Log  logr.Logger
}

// Guest is one QEMU. Its methods may be called from several goroutines.
type Guest struct {
	env     Env
	monitor *qmp.Client
	// pid is QEMU's process, for its figures only: nothing is done to it.
	pid int
	// kvm means that QEMU runs the guest with KVM.
	kvm bool
	// resets holds a value once QEMU has reported a reset.
	resets chan struct{}
	// power keeps a user's verbs and virt-handler's own attempts to resume the
	// guest apart: each looks at the run state and acts on what it saw.
	power sync.Mutex
	// postCopy means that the source was told to switch to post-copy, and moves that its guest moves by that: until
	// QEMU says so it must not be canceled. The holder of power has both.
	postCopy, moves bool

	mu sync.Mutex
	// known is what was found out; stale asks QEMU again, which was silent the last time.
	known         memory
	stale, silent bool
	// stopped is when QEMU last said that it has stopped the guest, which has not run since.
	stopped time.Time
	// running is called when QEMU says that the guest runs, by a verb that waits for it; nil for none.
	running func()
	links   links
	nics    NICs
	vcpus   vcpus
	memory  hotMemory
	// nicList is whether QEMU has to be asked again which interfaces it has.
	nicList inquiry
}

// Facts are what is known of the guest.
type Facts struct {
	// KVM means that QEMU runs the guest with KVM, and does not emulate it.
	KVM bool
	// RunState is QEMU's, as it was last asked for.
	RunState string
	// Stopped is when QEMU stopped the guest, which has not run since; zero if it runs, or if
	// it was stopped before Open.
	Stopped time.Time
	// Stalled means that an I/O error has stopped the guest, or had until a moment ago;
	// FailedDisks are the disks that it was on, as far as they are known.
	Stalled     bool
	FailedDisks []guestlifecycle.FailedDisk
	// PausedByUser means that the guest is to stay stopped even if the disks work again.
	PausedByUser bool
	// Halted means that this QEMU waits for volumes before it runs its CPUs for the
	// first time (guestlifecycle.Halt).
	Halted bool
	// Resume means that the guest is to be told to continue now, Attempts is how often it
	// was after an I/O error.
	Resume   bool
	Attempts int
	// Migration is what QEMU has to do with migrations, Jobs are the copies of disks that it makes for
	// them, or has made.
	Migration Migration
	Jobs      []Job
	// Links are the states of the interfaces' links, as far as they are known.
	Links map[string]v1.InterfaceState
	// NICs are the interfaces that QEMU has and had.
	NICs NICs
	// VCPUs is how many virtual CPUs the guest has, 0 if that is not known.
	VCPUs int
	// Memory is what the guest has beside the memory that it was started with.
	Memory guestlifecycle.Memory
	// Silent means that QEMU did not answer when it was asked last: what is known is from before.
	Silent bool
	// After is when the guest is to be looked at again; 0 for when something happens.
	After time.Duration
}

// Open takes over the connection to a QEMU's monitor, and asks what has happened so far.
// disks are those of the guest's specification.
func Open(ctx context.Context, conn *net.UnixConn, env Env, disks []v1.Disk) (*Guest, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	g := &Guest{env: env, resets: make(chan struct{}, 1), links: links{}, nics: newNICs()}
	var err error
	if g.pid, err = podpath.PeerPID(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if g.monitor, err = qmp.New(ctx, conn, g.handleEvent); err != nil {
		return nil, err
	}
	if err := errors.Join(g.learnAccelerator(ctx), g.learnNICs(ctx), g.ask(ctx, disks)); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// learnAccelerator asks what QEMU runs the guest with, which stays so until QEMU ends.
func (g *Guest) learnAccelerator(ctx context.Context) error {
	var answer struct {
		Enabled bool `json:"enabled"`
	}
	if err := g.monitor.Execute(ctx, "query-kvm", nil, &answer); err != nil {
		return fmt.Errorf("asking QEMU whether it uses KVM: %w", err)
	}
	g.kvm = answer.Enabled
	return nil
}

// Close lets go of the monitor, and returns when no event will be reported any more. It
// must not be called from OnEvent.
func (g *Guest) Close() { _ = g.monitor.Close() }

// Done is closed when the monitor has ended, which QEMU's end does, too.
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

// Monitor is QEMU's, for those who look after other parts of it: disks, the agent's port.
func (g *Guest) Monitor() *qmp.Client { return g.monitor }

// Observe gives what is known now. It asks nobody.
func (g *Guest) Observe() Facts {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.env.Now()
	g.known = g.known.at(now)
	facts := g.known.facts(now)
	facts.VCPUs = g.vcpus.present()
	g.memory = g.memory.at(now)
	facts.Memory, facts.After = g.memory.facts(), backoff.Sooner(facts.After, g.memory.after(now))
	facts.KVM, facts.Stopped, facts.Silent, facts.Links = g.kvm, g.stopped, g.silent, maps.Clone(g.links)
	facts.NICs = g.nics.clone()
	return facts
}

// changing are the events after which the run state may be another.
var changing = []string{
	"STOP", "RESUME", "RESET", "BLOCK_IO_ERROR", "WATCHDOG", "GUEST_PANICKED", "SUSPEND", "WAKEUP", "SHUTDOWN", "MIGRATION",
	jobEvent,
}

// jobEvent is of a job that has come to another point: Drydock's are copies of disks.
const jobEvent = "JOB_STATUS_CHANGE"

// handleEvent notes what QEMU reports. It is called from the monitor's goroutine.
func (g *Guest) handleEvent(e qmp.Event) {
	look := g.env.OnEvent(e)
	look = g.noteDeleted(e) || look
	look = g.heardCPUs(e) || look
	look = g.heardMemory(e) || look
	if e.Name == "RESET" {
		select {
		case g.resets <- struct{}{}:
		default:
		}
	}
	if e.Name == "RESUME" {
		g.heardRunning()
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

// heardCPUs notes what an event says of CPUs, and reports whether that is news.
func (g *Guest) heardCPUs(e qmp.Event) (news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.vcpus, news = g.vcpus.heard(e)
	return news
}

// Refresh follows up on events: what they say may be out of date by the time
// they are read, so QEMU is asked. disks are those of the guest's specification.
func (g *Guest) Refresh(ctx context.Context, disks []v1.Disk) {
	g.refresh(ctx, &g.nicList, g.learnNICs)
	g.mu.Lock()
	stale := g.stale || passing(g.known.runState) || g.known.migration.UnderWay() || copying(g.known.jobs)
	g.stale = false
	g.mu.Unlock()
	if !stale {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	err := g.ask(ctx, disks)
	g.mu.Lock()
	g.silent = errors.Is(err, context.DeadlineExceeded)
	g.mu.Unlock()
	if err != nil {
		// QEMU is ending, which comes as an event of its own, or is stuck: then
		// its last state is the best that is known.
		g.env.Log.V(1).Info("QEMU did not say its state", "reason", err.Error())
	}
}

// expire has the next Refresh ask QEMU.
func (g *Guest) expire() {
	g.mu.Lock()
	g.stale = true
	g.mu.Unlock()
	g.env.Wake()
}

// exclusive does something that depends on the guest's run state, while nobody else
// of this virt-handler changes it, and has the owner look at what has come of it.
func (g *Guest) exclusive(ctx context.Context, do func(context.Context, observation) error) error {
	return g.unconditional(ctx, func(ctx context.Context) error {
		seen, err := g.queryAll(ctx)
		if err != nil {
			return err
		}
		return do(ctx, seen.observation())
	})
}

// unconditional is exclusive for what QEMU itself refuses in another state than the right one.
func (g *Guest) unconditional(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	g.power.Lock()
	defer g.power.Unlock()
	defer g.expire()
	return do(ctx)
}

func (g *Guest) execute(ctx context.Context, command string, args any) error {
	return g.monitor.Execute(ctx, command, args, nil)
}

// PressKeys presses a combination of keys, by their names in QEMU (QKeyCode).
func (g *Guest) PressKeys(ctx context.Context, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	type key struct {
		Type string `json:"type"`
		Data string `json:"data"`
	}
	var keys []key
	for _, name := range names {
		keys = append(keys, key{"qcode", name})
	}
	if err := g.execute(ctx, "send-key", map[string]any{"keys": keys}); err != nil {
		return fmt.Errorf("pressing keys: %w", err)
	}
	return nil
}
