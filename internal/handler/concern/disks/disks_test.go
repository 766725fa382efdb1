package disks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/concern/concerntest"
	"drydock.dev/drydock/internal/handler/nodehotplug"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/machine"
)

// These tests use a model of QEMU's monitor (qmptest), which is tested against QEMU, and folders that no kubelet has
// mounted.

// patience bounds one short wait.
const patience = 4 * time.Minute

// claimSize is the size of each claim.
const claimSize = 8 << 20

// storage has the folders of the volumes of claims, and the events.
type storage struct {
	dir string

	mu     sync.Mutex
	broken error
	events []string
}

func (s *storage) Event(_ *v1.VirtualMachineInstance, kind, reason, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, kind+" "+reason+": "+message)
}

func (s *storage) volume(_ context.Context, pod types.UID, claim string) (*podpath.Volume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return nil, s.broken
	}
	folder, err := podpath.Open(filepath.Join(s.dir, string(pod), "volume-of-"+claim))
	if err != nil {
		return nil, err
	}
	return &podpath.Volume{Folder: folder}, nil
}

func (s *storage) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

func (s *storage) reported() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// image makes the disk image of a claim in its place in a pod.
func (s *storage) image(t *testing.T, pod, claim string) {
	t.Helper()
	dir := filepath.Join(s.dir, pod, "volume-of-"+claim)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, layout.DiskImage)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, claimSize); err != nil {
		t.Fatal(err)
	}
}

// world is a QEMU and the disks of its guest, with their owner.
type world struct {
	*concerntest.Driven[Seen, Plan]
	t       *testing.T
	concern *Concern
	qemu    *qmptest.Server
	storage *storage
	// view has the facts of the next round.
	view    concern.Round
	helpers sync.WaitGroup
	woken   chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, qemu: qmptest.New(t), storage: &storage{dir: t.TempDir()}, woken: make(chan struct{}, 1)}
	w.concern = New(Env{
		Volume: w.storage.volume, Capacity: func(context.Context, string) (int64, error) { return claimSize, nil },
		Tolerated: func() int { return 10 }, Event: w.storage.Event, Now: time.Now,
		Input: func(vmi *v1.VirtualMachineInstance) machine.Input {
			return machine.Input{VMI: vmi, Images: map[string]launch.PreparedImage{}, Now: time.Now()}
		},
		Go: func(f func()) { w.helpers.Go(f) }, Wake: func() {
			select {
			case w.woken <- struct{}{}:
			default:
			}
		},
	}, logr.Discard())
	w.Driven = concerntest.Drive(t, w.qemu, w.concern, concern.Round{})
	t.Cleanup(func() {
		w.helpers.Wait()
		w.concern.Close()
	})
	w.qemu.SetRunState("running")
	instance := &v1.VirtualMachineInstance{}
	instance.Namespace, instance.Name, instance.UID, instance.ResourceVersion = "shop", "web", "u", "1"
	instance.Status.Phase = v1.Running
	w.view = concern.Round{VMI: instance, LauncherPod: "launcher"}
	return w
}

// look runs a round on the present facts.
func (w *world) look() Plan {
	w.view.Now = time.Now()
	w.Change(func(r *concern.Round) { *r = w.view })
	return w.Look()
}

// act acts on a plan and waits for its helpers.
func (w *world) act(p Plan) {
	w.t.Helper()
	if err := w.Act(p); err != nil {
		w.t.Fatal(err)
	}
	w.helpers.Wait()
}

// wants makes the VMI's spec and status want the volume a on the claim of the attachment pod x.
func (w *world) wants() {
	const volume, claim, pod = "a", "claim-a", "x"
	w.t.Helper()
	w.storage.image(w.t, pod, claim)
	instance := w.view.VMI.DeepCopy()
	v := v1.Volume{Name: volume}
	v.DataVolume = &v1.DataVolumeSource{Name: claim, Hotpluggable: true}
	instance.Spec.Volumes = append(instance.Spec.Volumes, v)
	instance.Spec.Domain.Devices.Disks = append(instance.Spec.Domain.Devices.Disks, v1.Disk{
		// A read-only disk is not given to QEMU's user, which would need root.
		Name: volume, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI, ReadOnly: true}},
	})
	instance.Status.VolumeStatus = append(instance.Status.VolumeStatus, v1.VolumeStatus{
		Name: volume, Phase: v1.HotplugVolumeAttachedToNode,
		HotplugVolume:             &v1.HotplugVolumeStatus{AttachPodName: "hp-" + string(pod), AttachPodUID: pod},
		PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: claim},
	})
	record, err := hotplug.ReadRecord(instance.Annotations)
	if err != nil {
		w.t.Fatal(err)
	}
	record.Generation++
	record.Pods = append(record.Pods, hotplug.AttachmentPod{Name: "hp-" + string(pod), UID: pod})
	instance.Annotations = map[string]string{hotplug.RecordAnnotation: record.Text()}
	w.view.VMI = instance
	w.view.AttachmentPods = append(w.view.AttachmentPods, hotplug.Pod{
		Name: "hp-" + string(pod), UID: pod, Running: true, Volumes: []hotplug.Volume{{Name: volume, Claim: claim}},
	})
}

// drops makes the VMI no longer want a volume.
func (w *world) drops(volume string) {
	instance := w.view.VMI.DeepCopy()
	instance.Spec.Volumes = slices.DeleteFunc(instance.Spec.Volumes, func(v v1.Volume) bool { return v.Name == volume })
	instance.Spec.Domain.Devices.Disks = slices.DeleteFunc(instance.Spec.Domain.Devices.Disks, func(d v1.Disk) bool { return d.Name == volume })
	w.view.VMI = instance
}

// await runs rounds until volume a should have the phase in the status.
func (w *world) await(phase v1.VolumePhase, reason string) Plan {
	w.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		p := w.look()
		f := p.Hotplugged["a"]
		if f.Phase == phase && f.Reason == reason {
			return p
		}
		if p.Due {
			w.act(p)
			continue
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("volume a: %+v, want %s for %s; QEMU was told %v", f, phase, reason, w.qemu.Commands())
		}
		select {
		case <-w.woken:
		case <-time.After(10 * time.Millisecond): // the events of QEMU come to Driven
		}
	}
}

func TestAVolumeIsPluggedAndUnplugged(t *testing.T) {
	w := newWorld(t)
	w.wants()
	facts := w.await(v1.VolumeReady, "VolumeReady")
	if !w.qemu.HasDevice(machine.DiskID("a")) {
		t.Error("QEMU has no disk")
	}
	if f := facts.Hotplugged["a"]; f.PodUID != "x" || f.Size != claimSize || !facts.Plugged["a"] {
		t.Errorf("known is %+v", facts)
	}
	w.drops("a")
	facts = w.await(v1.HotplugVolumeUnMounted, "VolumeUnMountedFromPod")
	if w.qemu.HasDevice(machine.DiskID("a")) || facts.Plugged["a"] {
		t.Error("QEMU still has the disk")
	}
}

func TestAVolumeThatCannotBeOpenedIsReported(t *testing.T) {
	w := newWorld(t)
	w.storage.fail(errors.New("the storage is away"))
	w.wants()
	facts := w.await(v1.HotplugVolumeAttachedToNode, "FailedHotplug")
	if f := facts.Hotplugged["a"]; !strings.Contains(f.Message, "the storage is away") {
		t.Errorf("its status says %q", f.Message)
	}
	w.storage.fail(nil)
	w.await(v1.VolumeReady, "VolumeReady")
}

func TestAVolumeOfAVMIThatIsToEndIsLeftAlone(t *testing.T) {
	for name, end := range map[string]func(*v1.VirtualMachineInstance){
		"it is being deleted": func(instance *v1.VirtualMachineInstance) { instance.DeletionTimestamp = &instance.CreationTimestamp },
		"it is final":         func(instance *v1.VirtualMachineInstance) { instance.Status.Phase = v1.Succeeded },
	} {
		w := newWorld(t)
		w.wants()
		end(w.view.VMI)
		if p := w.look(); p.Due || p.After > 0 {
			t.Errorf("%s: something is due: %+v", name, p)
		}
		if got := w.qemu.Commands(); len(got) > 0 {
			t.Errorf("%s: QEMU was told %v", name, got)
		}
	}
}

// grows is a world with a disk of 1 MiB whose claim has claimSize.
func grows(t *testing.T) *world {
	w := newWorld(t)
	w.storage.image(t, "launcher", "claim-root")
	w.qemu.AddNode(machine.NodeName("root"), 1<<20)
	w.view.Images = map[string]launch.PreparedImage{"root": {Name: "root"}}
	w.view.Claims = map[string]*v1.PersistentVolumeClaimInfo{"root": {ClaimName: "claim-root"}}
	w.view.VMI.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "root", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}}}
	w.view.VMI.Status.VolumeStatus = []v1.VolumeStatus{status("root", "claim-root", claimSize, 1<<20)}
	return w
}

func TestADiskGrowsWithItsClaim(t *testing.T) {
	w := grows(t)
	w.act(w.look())
	size := w.look().Volumes["root"].Grown
	if size <= 1<<20 || size > claimSize || w.qemu.NodeSize(machine.NodeName("root")) != size {
		t.Errorf("it has grown to %d bytes, in QEMU to %d", size, w.qemu.NodeSize(machine.NodeName("root")))
	}
	if got := w.storage.reported(); len(got) != 1 || !strings.HasPrefix(got[0], "Normal VolumeResized: The disk of volume root has grown from 1048576 to ") {
		t.Errorf("the events are %q", got)
	}
	// Nothing else may happen until the claim grows again.
	if p := w.look(); p.Due || p.After > 0 || w.qemu.Executed("block_resize") != 1 {
		t.Errorf("again after %v; QEMU was told %v", p.After, w.qemu.Commands())
	}
}

func TestADiskThatCannotGrowIsTriedAgain(t *testing.T) {
	w := grows(t)
	w.storage.fail(errors.New("the storage is away"))
	w.act(w.look())
	if got := w.storage.reported(); len(got) != 1 || got[0] != "Warning FailedResize: disk of volume root: the storage is away" {
		t.Errorf("the events are %q", got)
	}
	p := w.look()
	if p.After <= 0 || p.After > growPause {
		t.Errorf("it is tried again after %v", p.After)
	}
	if p.Volumes["root"].Grown > 0 {
		t.Error("it counts as grown")
	}
}

func TestOtherEventsAreNoneOfTheDisks(t *testing.T) {
	w := newWorld(t)
	for name, want := range map[string]bool{
		"DEVICE_DELETED": true, "DEVICE_UNPLUG_GUEST_ERROR": true, "DEVICE_TRAY_MOVED": true, "RESUME": false, "STOP": false,
	} {
		if got := w.concern.HandleEvent(qmp.Event{Name: name, Data: []byte(`{"device": "disk-a"}`)}); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if w.concern.HandleEvent(qmp.Event{Name: "DEVICE_DELETED", Data: []byte(`"?"`)}) {
		t.Error("an event that makes no sense counts")
	}
}

// A QEMU that its guest has taken over invents events.
func TestOnlyADiskThatTheGuestWasAskedForIsRefused(t *testing.T) {
	w := newWorld(t)
	refuses := func(device string) {
		w.concern.HandleEvent(qmp.Event{Name: "DEVICE_UNPLUG_GUEST_ERROR", Data: []byte(`{"device": "` + device + `"}`)})
	}
	w.wants()
	w.await(v1.VolumeReady, "VolumeReady")
	for i := range 100 {
		refuses(fmt.Sprintf("disk-%d", i))
	}
	refuses(machine.DiskID("a"))
	if got := len(w.concern.state.refused); got > 0 {
		t.Errorf("%d devices are refused that nobody has asked for", got)
	}
	w.concern.noteRequest("a")
	refuses("disk-b")
	refuses(machine.DiskID("a"))
	if got := w.concern.state.refused; len(got) != 1 || !got[machine.DiskID("a")] {
		t.Errorf("the guest does not release %v", got)
	}
	w.drops("a")
	w.await(v1.HotplugVolumeUnMounted, "VolumeUnMountedFromPod")
	if asked, refused := w.concern.state.asked, w.concern.state.refused; len(asked)+len(refused) > 0 {
		t.Errorf("of a disk that is gone is kept: asked %v, refused %v", asked, refused)
	}
}

// TestWhatIsSaidOfDisksThatMove: the source must report disks that stay as they are, and the target those that are in
// their place.
func TestWhatIsSaidOfDisksThatMove(t *testing.T) {
	slot := machine.Slot{Bus: v1.DiskBusSCSI, Number: 7}
	disk := func(edit func(*diskhotplug.Disk)) diskhotplug.Disk {
		d := diskhotplug.Disk{Tag: diskhotplug.Tag{Volume: "a", Claim: "c", Bus: "scsi", Number: 7}, Stage: diskhotplug.Plugged}
		edit(&d)
		return d
	}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "a", Phase: v1.VolumeReady, HotplugVolume: &v1.HotplugVolumeStatus{AttachPodName: "hp-x", AttachPodUID: "x"},
		PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "c"},
	}}
	leaving := vmi.DeepCopy()
	leaving.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}
	with := func(d diskhotplug.Disk, edit func(*Seen)) Seen {
		s := newSeen()
		s.disks = map[string]diskhotplug.Disk{"a": d}
		s.inquiry.AcceptAnswer(s.inquiry.NextQuestion())
		edit(&s)
		return s
	}
	for name, test := range map[string]struct {
		disk            diskhotplug.Disk
		edit            func(*Seen)
		fixed, received bool
	}{
		"it is plugged":              {disk(func(*diskhotplug.Disk) {}), func(*Seen) {}, true, true},
		"it is elsewhere":            {disk(func(d *diskhotplug.Disk) { d.Number = 8 }), func(*Seen) {}, true, false},
		"it is on another claim":     {disk(func(d *diskhotplug.Disk) { d.Claim = "x" }), func(*Seen) {}, true, false},
		"it is there in part":        {disk(func(d *diskhotplug.Disk) { d.Stage = diskhotplug.Partial }), func(*Seen) {}, true, false},
		"QEMU is to be asked":        {disk(func(*diskhotplug.Disk) {}), func(s *Seen) { s.inquiry.Invalidate() }, false, false},
		"the guest was asked for it": {disk(func(*diskhotplug.Disk) {}), func(s *Seen) { s.asked["a"] = true }, false, true},
		"the guest has refused": {disk(func(*diskhotplug.Disk) {}), func(s *Seen) {
			s.asked["a"], s.refused[machine.DiskID("a")] = true, true
		}, true, true},
	} {
		seen := with(test.disk, test.edit)
		source := New(Env{}, logr.Discard()).Decide(concern.Round{VMI: leaving}, seen)
		target := New(Env{}, logr.Discard()).Decide(concern.Round{
			VMI: vmi, Arrival: &concern.Arrival{VMI: vmi, Places: map[string]machine.Slot{"a": slot}},
		}, seen)
		if source.Fixed != test.fixed || target.Received != test.received {
			t.Errorf("%s: fixed %v, received %v", name, source.Fixed, target.Received)
		}
		if plugged := test.disk.Stage == diskhotplug.Plugged; (len(source.Plugs.Disks) == 1) != plugged {
			t.Errorf("%s: the source tells of %+v", name, source.Plugs)
		}
		if source.Due || len(source.Decisions) > 0 {
			t.Errorf("%s: the source changes disks: %+v", name, source.Decisions)
		}
		if target.Fixed {
			t.Errorf("%s: the target tells of its disks", name)
		}
	}
	seen := with(disk(func(*diskhotplug.Disk) {}), func(*Seen) {})
	if p := New(Env{}, logr.Discard()).Decide(concern.Round{VMI: vmi}, seen); p.Fixed || p.Received {
		t.Errorf("a guest that stays: %+v", p)
	}
	if p := New(Env{}, logr.Discard()).Decide(concern.Round{VMI: vmi, Arrival: &concern.Arrival{VMI: vmi}}, seen); p.Received {
		t.Errorf("nothing was told of: %+v", p)
	}
	seen = with(disk(func(d *diskhotplug.Disk) { d.Stage = diskhotplug.Detached }), func(*Seen) {})
	if p := New(Env{}, logr.Discard()).Decide(concern.Round{VMI: leaving}, seen); !p.Fixed || len(p.Plugs.Detached) != 1 || len(p.Plugs.Disks) > 0 {
		t.Errorf("of a disk that was taken by force the source tells %+v", p)
	}
}

// TestDisksStayWhileQEMUMigrates: the target finds the disks that the guest had, even when the VMI's migration has failed
// and QEMU has not ended it yet.
func TestDisksStayWhileQEMUMigrates(t *testing.T) {
	for name, change := range map[string]func(*concern.Round){
		"it migrates":     func(r *concern.Round) { r.Migrating = true },
		"it copies disks": func(r *concern.Round) { r.CopyingDisks = true },
	} {
		w := newWorld(t)
		w.wants()
		change(&w.view)
		if p := w.look(); p.Due || len(p.Decisions) != 1 {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// bounded is a QEMU that takes commands only from a caller who does not wait for ever.
type bounded struct{ t *testing.T }

func (b bounded) Execute(ctx context.Context, command string, _, _ any) error {
	if _, is := ctx.Deadline(); !is {
		b.t.Errorf("%s: the answer is awaited for ever", command)
	}
	return nil
}

func (b bounded) ExecuteWithFile(ctx context.Context, command string, args any, _ *os.File, into any) error {
	return b.Execute(ctx, command, args, into)
}

// QEMU may not answer, and the driver has other work.
func TestNoAnswerIsAwaitedForEver(t *testing.T) {
	c := New(Env{Now: time.Now, Input: func(vmi *v1.VirtualMachineInstance) machine.Input { return machine.Input{VMI: vmi} }}, logr.Discard())
	c.state.disks = map[string]diskhotplug.Disk{"a": {Stage: diskhotplug.Plugged, Tag: diskhotplug.Tag{Volume: "a", Device: machine.DiskID("a")}}}
	for _, action := range []nodehotplug.Action{nodehotplug.Ask, nodehotplug.Force, nodehotplug.Clear} {
		plan := Plan{Decisions: []nodehotplug.Decision{{Volume: "a", Action: action}}}
		if err := c.Act(t.Context(), bounded{t}, concern.Round{VMI: &v1.VirtualMachineInstance{}}, plan); err != nil {
			t.Errorf("%s: %v", action, err)
		}
	}
}

// A migration asks for the claims of all volumes, also of those that are no disks.
func TestTheClaimOfEachVolumeIsReported(t *testing.T) {
	claim := func(name string) *v1.PersistentVolumeClaimInfo { return &v1.PersistentVolumeClaimInfo{ClaimName: name} }
	round := concern.Round{
		VMI:    &v1.VirtualMachineInstance{},
		Images: map[string]launch.PreparedImage{"root": {VirtualSize: claimSize}, "image": {VirtualSize: 1}},
		Claims: map[string]*v1.PersistentVolumeClaimInfo{"root": claim("r"), "folder": claim("f")},
	}
	got := (&Concern{}).Decide(round, Seen{}).Volumes
	if len(got) != 3 || got["root"].Size != claimSize || got["root"].Claim.ClaimName != "r" || got["folder"].Claim.ClaimName != "f" || got["image"].Claim != nil {
		t.Errorf("got %+v", got)
	}
}
