package nodehotplug

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/object/backoff"
)

// Env has a Worker's dependencies.
type Env struct {
	Volume func(ctx context.Context, pod types.UID, claim string) (*podpath.Volume, error)
	// Capacity is in bytes.
	Capacity func(ctx context.Context, claim string) (int64, error)
	// Tolerated returns by how many percent a new image may be smaller.
	Tolerated func() int
	// Go runs operations that may wait for storage, on a goroutine that the caller owns.
	Go   func(func())
	Wake func()
	Now  func() time.Time
}

// Worker manages the hotplugged volumes of one guest. Look, Act and Close are for one goroutine; HandleEvent is safe
// for concurrent use.
type Worker struct {
	env Env

	// disks is QEMU's last answer; nil before the first.
	disks     map[string]diskhotplug.Disk
	decisions []Decision
	// version is the VMI's resource version for decisions.
	version string
	tried   map[string]*attempts
	// still means that the last Look was to leave everything unchanged. arriving and places are from its View.
	still, arriving bool
	places          map[string]machine.Slot
	asked           map[string]bool

	mu    sync.Mutex
	stale bool
	// resumed means that a stopped guest has continued. Until then QEMU 7.2 keeps the descriptors that it was told to
	// remove.
	resumed bool
	// refused has the devices that, as QEMU reports, the guest does not release.
	refused  map[string]bool
	opening  map[string]bool
	opened   map[string]openedDisk
	verified map[string]types.UID
	failed   map[string]error
	closed   bool
}

type openedDisk struct {
	pod  types.UID
	disk *Opened
}

// NewWorker returns the Worker of a guest whose monitor has just been connected.
func NewWorker(env Env) *Worker {
	return &Worker{
		env: env, stale: true, tried: map[string]*attempts{}, asked: map[string]bool{}, refused: map[string]bool{},
		opening: map[string]bool{}, opened: map[string]openedDisk{}, verified: map[string]types.UID{}, failed: map[string]error{},
	}
}

// Close closes the disks that were opened and not plugged.
func (w *Worker) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, h := range w.opened {
		h.disk.File.Close()
	}
	clear(w.opened)
}

// HandleEvent handles QEMU's events about disks, and BLOCK_RESIZED, which does not come from QEMU.
func (w *Worker) HandleEvent(event, device string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch event {
	case "DEVICE_UNPLUG_GUEST_ERROR":
		w.refused[device] = true
	case "RESUME":
		w.resumed = true
	case "DEVICE_DELETED", "DEVICE_TRAY_MOVED", "BLOCK_RESIZED":
	default:
		return
	}
	w.stale = true
}

// View is Look's input, except QEMU's answer.
type View struct {
	VMI            *v1.VirtualMachineInstance
	Record         hotplug.Record
	AttachmentPods []hotplug.Pod
	Halted         bool
	// Still means that the guest must keep its disks because it is being migrated.
	Still    bool
	Arriving bool
	Places   map[string]machine.Slot
	Copied   map[string]int64
}

// Look queries QEMU if necessary, and decides. due reports whether Act has work now; otherwise after is the delay
// until it has, zero for never.
func (w *Worker) Look(ctx context.Context, m diskhotplug.Monitor, view View) (due bool, after time.Duration, err error) {
	w.mu.Lock()
	stale := w.stale
	w.stale = false
	w.mu.Unlock()
	if stale {
		disks, err := diskhotplug.Observe(ctx, m)
		if err != nil {
			w.mu.Lock()
			w.stale = true
			w.mu.Unlock()
			return false, longestDelay, fmt.Errorf("asking QEMU for its hotplugged disks: %w", err)
		}
		w.disks = disks
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgetReleased()
	w.arriving, w.places = view.Arriving, view.Places
	if w.still = view.Still; w.still {
		w.decisions, w.version = nil, ""
		return false, 0, nil
	}
	o := Observed{
		VMI: view.VMI, Record: view.Record, AttachmentPods: view.AttachmentPods, Disks: w.disks,
		Opened: map[string]types.UID{}, Verified: w.verified, Halted: view.Halted,
		Arriving: view.Arriving, Places: view.Places, Copied: view.Copied,
	}
	for volume, h := range w.opened {
		o.Opened[volume] = h.pod
	}
	w.decisions, w.version = Decide(o), view.VMI.ResourceVersion
	if w.resumed {
		w.resumed = false
		clear(w.tried)
	}
	due, after = w.schedule()
	return due, after, nil
}

// schedule reports whether a decision can be acted on now. The caller holds w.mu.
func (w *Worker) schedule() (due bool, after time.Duration) {
	now := w.env.Now()
	seen := map[string]bool{}
	for i := range w.decisions {
		d := &w.decisions[i]
		seen[d.Volume] = true
		t := w.attemptsOf(d.Volume, d.Action)
		if err := w.failed[d.Volume]; err != nil {
			delete(w.failed, d.Volume)
			t.recordFailure(err, now)
		}
		if d.Action == Rest || w.opening[d.Volume] {
			continue
		}
		if left := t.retry.Sub(now); left > 0 {
			after = backoff.Sooner(after, left)
		} else {
			due = true
		}
	}
	maps.DeleteFunc(w.tried, func(volume string, _ *attempts) bool { return !seen[volume] })
	return due, after
}

// attemptsOf begins at zero when the action changes.
func (w *Worker) attemptsOf(volume string, action Action) *attempts {
	t := w.tried[volume]
	if t == nil || t.action != action {
		t = &attempts{action: action}
		w.tried[volume] = t
	}
	return t
}

// Act takes the actions that are due since the last Look. A failed action is retried later and does not hold up the
// others.
func (w *Worker) Act(ctx context.Context, m diskhotplug.Monitor, in machine.Input) {
	for _, d := range w.decisions {
		t := w.attemptsOf(d.Volume, d.Action)
		w.mu.Lock()
		waiting := w.opening[d.Volume] || w.env.Now().Before(t.retry)
		w.mu.Unlock()
		if d.Action == Rest || waiting {
			continue
		}
		err := w.act(ctx, m, in, d)
		switch {
		case err != nil:
			t.recordFailure(err, w.env.Now())
		case d.Action == Ask || d.Action == Clear:
			// Repeated if it has no effect.
			t.recordSuccess(w.env.Now())
		}
	}
}

func (w *Worker) act(ctx context.Context, m diskhotplug.Monitor, in machine.Input, d Decision) error {
	switch d.Action {
	case Open, Verify:
		w.openInBackground(ctx, d, machine.ReadOnly(&in.VMI.Spec, d.Volume))
		return nil
	case Drop:
		w.closeOpened(d.Volume)
		return nil
	}
	defer w.markStale()
	switch d.Action {
	case Plug:
		return w.plug(ctx, m, in, d)
	case Ask, Eject:
		w.asked[d.Volume] = true
		return diskhotplug.Ask(ctx, m, w.disks[d.Volume])
	case Force:
		return diskhotplug.Force(ctx, m, w.disks[d.Volume], machine.DetachedNode(d.Volume))
	case Clear:
		return diskhotplug.Clear(ctx, m, w.disks[d.Volume])
	}
	return nil
}

func (w *Worker) markStale() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stale = true
}

// openInBackground opens the disk in the background: storage may block, and no other volume should wait for it.
func (w *Worker) openInBackground(ctx context.Context, d Decision, readOnly bool) {
	w.mu.Lock()
	w.opening[d.Volume] = true
	w.mu.Unlock()
	w.env.Go(func() {
		opened, err := w.openIn(ctx, d, readOnly)
		w.mu.Lock()
		delete(w.opening, d.Volume)
		switch {
		case err != nil:
			w.failed[d.Volume] = err
		case d.Action == Verify:
			w.verified[d.Volume] = d.Source.UID
			opened.File.Close()
		case w.closed:
			opened.File.Close()
		default:
			w.opened[d.Volume] = openedDisk{pod: d.Source.UID, disk: opened}
		}
		w.mu.Unlock()
		w.env.Wake()
	})
}

func (w *Worker) openIn(ctx context.Context, d Decision, readOnly bool) (*Opened, error) {
	volume, err := w.env.Volume(ctx, d.Source.UID, d.Claim)
	if err != nil {
		return nil, err
	}
	defer volume.Close()
	return OpenDisk(ctx, volume, Request{
		Volume: d.Volume, Claim: d.Claim, ReadOnly: readOnly || d.Action == Verify, Size: d.Size, Capacity: w.env.Capacity,
		Tolerated: w.env.Tolerated(),
	})
}

// Plugged returns the volumes of the spec that QEMU had at the last Look.
func (w *Worker) Plugged(instance *v1.VirtualMachineInstance) map[string]bool {
	plugged := map[string]bool{}
	for name, disk := range w.disks {
		plugged[name] = disk.Stage == diskhotplug.Plugged && disk.Claim == Claim(&instance.Spec, name)
	}
	return plugged
}

func (w *Worker) closeOpened(volume string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h, ok := w.opened[volume]; ok {
		h.disk.File.Close()
		delete(w.opened, volume)
	}
}

func (w *Worker) plug(ctx context.Context, m diskhotplug.Monitor, in machine.Input, d Decision) error {
	w.mu.Lock()
	disk := w.opened[d.Volume].disk
	delete(w.refused, machine.DiskID(d.Volume))
	w.mu.Unlock()
	tag := diskhotplug.Tag{Volume: d.Volume, Claim: d.Claim, Device: machine.DiskID(d.Volume), Drive: machine.IsDrive(&in.VMI.Spec, d.Volume)}
	var slot machine.Slot
	switch {
	case tag.Drive:
	case d.Place != nil:
		slot = *d.Place
		tag.Bus, tag.Number = string(slot.Bus), slot.Number
	default:
		var err error
		if slot, err = machine.FreeSlot(&in.VMI.Spec, d.Volume, w.takenSlots()); err != nil {
			return err
		}
		tag.Bus, tag.Number = string(slot.Bus), slot.Number
	}
	tag.Nodes = machine.PlugNodes(d.Volume)
	err := diskhotplug.Plug(ctx, m, tag, disk.File, func(path string) (diskhotplug.Parts, error) {
		image := disk.Image
		image.Source = path
		in.Images = maps.Clone(in.Images)
		in.Images[d.Volume] = image
		plug, err := machine.BuildPlug(in, d.Volume, slot)
		if err != nil {
			return diskhotplug.Parts{}, err
		}
		parts := diskhotplug.Parts{Device: plug.Device}
		for _, b := range plug.Blockdevs {
			parts.Blockdevs = append(parts.Blockdevs, b)
		}
		return parts, nil
	})
	if err == nil {
		// QEMU has its own descriptor now. The status names the pod in which the disk was opened.
		w.closeOpened(d.Volume)
		w.disks[d.Volume] = diskhotplug.Disk{Tag: tag, Stage: diskhotplug.Plugged, Size: disk.Image.VirtualSize}
	}
	return err
}

func (w *Worker) takenSlots() []machine.Slot {
	var taken []machine.Slot
	for _, d := range w.disks {
		if d.Bus != "" {
			taken = append(taken, machine.Slot{Bus: v1.DiskBus(d.Bus), Number: d.Number})
		}
	}
	return taken
}
