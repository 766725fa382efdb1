// Package memorydump dumps the memory of a running guest to a file in a claim. It is a concern (package concern).
//
// The rule is DecideOnNode of the rules' package memorydump. This package keeps the open file until QEMU has it, and how
// far this virt-handler has come; the next one finds out by the claim's files and QEMU's last dump (files.go).
package memorydump

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/podpath"
	qemudump "drydock.dev/drydock/internal/qemu/memorydump"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/hotplug"
	migrations "drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/vm/memorydump"
	"drydock.dev/drydock/internal/rules/vm/memorydump/dumpspace"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Env has the effects of Act outside of QEMU.
type Env struct {
	Volume func(ctx context.Context, pod types.UID, claim string) (*podpath.Volume, error)
	// Go runs a function that may wait for storage; the owner waits for it. It calls Wake after a change.
	Go   func(func())
	Wake func()
	Now  func() time.Time
}

// Seen is the state of the guest's dumps. Its map is not modified.
type Seen struct {
	inquiry concern.Inquiry
	qemu    qemudump.State
	failure string // QEMU's, of the last dump
	work    map[string]memorydump.Work
}

// Plan is the next step.
type Plan struct {
	concern.Next
	decisions []memorydump.Decision
	volumes   map[string]vmihandler.Plugged
	last      qemudump.State
}

// Concern is the memory dumps of one guest: one at a time, but for a volume that is being released.
type Concern struct {
	env    Env
	log    logr.Logger
	mu     sync.Mutex
	state  Seen
	files  map[string]*os.File // prepared, by name
	closed bool
}

// New returns the dumps of a guest about which nothing is known yet.
func New(env Env, log logr.Logger) *Concern {
	return &Concern{env: env, log: log, state: Seen{work: map[string]memorydump.Work{}}, files: map[string]*os.File{}}
}

// Close closes files that QEMU was not given.
func (c *Concern) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, f := range c.files {
		f.Close()
	}
	clear(c.files)
}

// HandleEvent implements concern.Concern.
func (c *Concern) HandleEvent(e qmp.Event) bool {
	if e.Name != qemudump.CompletedEvent {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.failure = qemudump.Error(e)
	return c.state.inquiry.Invalidate()
}

// idle reports whether there is nothing to do: QEMU is not asked.
func idle(r *concern.Round) bool {
	return r.Arrival != nil || r.VMI.DeletionTimestamp != nil || r.VMI.IsFinal() || migrations.InFlight(r.VMI) || !memorydump.Of(r.VMI)
}

// Observe implements concern.Concern.
func (c *Concern) Observe(ctx context.Context, q concern.Query, r concern.Round) (Seen, error) {
	c.forget(r.VMI)
	var err error
	if !idle(&r) {
		err = c.query(ctx, q)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.state
	seen.work = maps.Clone(c.state.work)
	return seen, err
}

func (c *Concern) query(ctx context.Context, q concern.Query) error {
	c.mu.Lock()
	outdated, question := c.state.inquiry.Outdated(), c.state.inquiry.NextQuestion()
	c.mu.Unlock()
	if !outdated {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	state, err := qemudump.Observe(ctx, q)
	if err != nil {
		return fmt.Errorf("asking QEMU for its last memory dump: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.inquiry.AcceptAnswer(question) {
		c.state.qemu = state
	}
	return nil
}

// retry is the delay after a question that QEMU did not answer.
const retry = 5 * time.Second

// Decide implements concern.Concern.
func (*Concern) Decide(r concern.Round, seen Seen) Plan {
	p := Plan{volumes: map[string]vmihandler.Plugged{}, last: seen.qemu}
	if idle(&r) {
		p.Settled = true
		return p
	}
	if seen.inquiry.Outdated() {
		p.After = retry
		return p
	}
	// An unreadable record hands nothing over.
	record, _ := hotplug.RecordOf(r.VMI)
	progress := memorydump.Progress(seen.qemu.Status)
	p.Unsettled = progress == memorydump.Active
	may := r.Reported() && !r.Halted && !r.Migrating && !r.CopyingDisks
	for i := range r.VMI.Status.VolumeStatus {
		s := &r.VMI.Status.VolumeStatus[i]
		if s.MemoryDumpVolume == nil {
			continue
		}
		d := memorydump.DecideOnNode(memorydump.OnNode{
			VMI: r.VMI, Name: s.Name, Record: record, Pods: r.AttachmentPods, May: may, QEMU: progress, Error: seen.failure,
			Work: seen.work[s.MemoryDumpVolume.TargetFileName], Now: r.Now,
		})
		p.decisions = append(p.decisions, d)
		p.volumes[s.Name] = vmihandler.Plugged{
			Phase: d.Phase, Reason: d.Reason, Message: d.Message, PodName: d.PodName, PodUID: d.PodUID, Dump: d.Info,
		}
		p.Due = p.Due || d.Action != memorydump.Rest
	}
	p.Settled = !p.Due
	return p
}

// Report implements concern.Concern.
func (*Concern) Report(plan Plan, facts *vmihandler.Guest) {
	if len(plan.volumes) == 0 {
		return
	}
	all := map[string]vmihandler.Plugged{}
	maps.Copy(all, facts.Plugged)
	maps.Copy(all, plan.volumes)
	facts.Plugged = all
}

// Act implements concern.Concern. A failure is in the volume's status, and ends its dump.
func (c *Concern) Act(ctx context.Context, m concern.Monitor, r concern.Round, plan Plan) error {
	for _, d := range plan.decisions {
		switch d.Action {
		case memorydump.Rest:
		case memorydump.Send:
			c.send(ctx, m, d.File)
		default:
			c.inBackground(ctx, r.VMI, d, plan.last)
		}
	}
	return nil
}

// forget drops the work on files that the status does not name any more.
func (c *Concern) forget(vmi *v1.VirtualMachineInstance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.state.work, func(file string, w memorydump.Work) bool {
		named := slices.ContainsFunc(vmi.Status.VolumeStatus, func(s v1.VolumeStatus) bool {
			return s.MemoryDumpVolume != nil && s.MemoryDumpVolume.TargetFileName == file
		})
		return !named && !w.Busy
	})
	for name, f := range c.files {
		if _, known := c.state.work[name]; !known {
			f.Close()
			delete(c.files, name)
		}
	}
}

func (c *Concern) send(ctx context.Context, m concern.Monitor, name string) {
	c.mu.Lock()
	file := c.files[name]
	delete(c.files, name)
	c.state.failure = ""
	c.mu.Unlock()
	if file == nil {
		return
	}
	defer file.Close() // QEMU has its own
	ctx, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	err := qemudump.Start(ctx, m, file)
	c.update(name, func(w *memorydump.Work) {
		w.Prepared, w.Sent = false, true
		switch {
		case err == nil:
		case qemudump.Refused(err):
			c.fail(w, fmt.Errorf("QEMU did not begin the dump: %w", err))
		default: // QEMU executes commands in order: its next answer shows whether it has begun
			c.log.Info("QEMU is late to begin a memory dump", "reason", err.Error())
		}
	})
	c.mu.Lock()
	c.state.inquiry.Invalidate()
	c.mu.Unlock()
}

func (c *Concern) fail(w *memorydump.Work, err error) {
	c.log.Info("a memory dump has failed", "reason", err.Error())
	w.Failure, w.Ended = err.Error(), c.env.Now()
}

func (c *Concern) update(file string, change func(*memorydump.Work)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.state.work[file]
	change(&w)
	c.state.work[file] = w
}

// inBackground does an action on the claim's files. Storage may block.
func (c *Concern) inBackground(ctx context.Context, vmi *v1.VirtualMachineInstance, d memorydump.Decision, last qemudump.State) {
	c.update(d.File, func(w *memorydump.Work) { w.Busy = true })
	c.env.Go(func() {
		done, err := c.onClaim(ctx, vmi, d, last)
		c.update(d.File, func(w *memorydump.Work) {
			w.Busy = false
			c.takeResult(w, d, done, err)
		})
		c.env.Wake()
	})
}

// takeResult has c.mu locked.
func (c *Concern) takeResult(w *memorydump.Work, d memorydump.Decision, done outcome, err error) {
	switch {
	case d.Action == memorydump.Clean:
		if w.Cleaned = true; err != nil {
			c.log.Info("the rest of a memory dump stays in its claim", "claim", d.Claim, "file", memorydump.Partial(d.File), "reason", err.Error())
		}
		if w.Failure == "" {
			w.Failure, w.Ended = c.state.reason(), c.env.Now()
		}
		if err == nil {
			w.Failure += fmt.Sprintf(" (the PVC %s had %s left)", d.Claim, amount(done.left))
		}
		if f := c.files[d.File]; f != nil {
			f.Close()
			delete(c.files, d.File)
		}
	case err != nil:
		c.fail(w, err)
	case done.stored:
		w.Stored, w.Ended = true, c.env.Now()
	case c.closed:
		done.file.Close()
	default:
		w.Prepared, c.files[d.File] = true, done.file
	}
}

// reason returns why QEMU's last dump has failed.
func (s *Seen) reason() string {
	if s.failure == "" {
		return "QEMU could not write the dump"
	}
	return "QEMU could not write the dump: " + s.failure
}

func (c *Concern) onClaim(ctx context.Context, vmi *v1.VirtualMachineInstance, d memorydump.Decision, last qemudump.State) (outcome, error) {
	volume, err := c.env.Volume(ctx, d.Source.UID, d.Claim)
	if err != nil {
		return outcome{}, err
	}
	defer volume.Close()
	if volume.Folder == nil {
		return outcome{}, fmt.Errorf("the PVC %s is a block device: a memory dump needs a claim of mode Filesystem", d.Claim)
	}
	t := target{folder: volume.Folder, vmi: vmi.Name, claim: d.Claim, file: d.File, need: dumpspace.Of(vmi), last: last}
	switch d.Action {
	case memorydump.Prepare:
		return t.prepare()
	case memorydump.Finish:
		return t.finish()
	case memorydump.Clean:
		return t.clean()
	}
	return outcome{}, nil
}
