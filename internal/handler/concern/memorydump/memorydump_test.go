package memorydump

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/vm/memorydump"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// pattern is in the guest's memory at address.
const (
	pattern = 0x6b6364_79724421 // 7 bytes
	address = 0x1000000
)

// dumped is a guest, in a real QEMU, and the folder of a claim.
type dumped struct {
	t       *testing.T
	vmi     *v1.VirtualMachineInstance
	folder  string
	monitor *qmp.Client
	concern *Concern
	woken   chan struct{}
	running sync.WaitGroup
	last    Plan
	acted   []memorydump.Action
	acting  concern.Monitor // for Act; nil for monitor
	podGone bool
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives files to QEMU's user, and makes mounts")
	}
}

func start(t *testing.T, folder string, args ...string) *dumped {
	t.Helper()
	needRoot(t)
	d := &dumped{t: t, folder: folder, woken: make(chan struct{}, 1)}
	t.Cleanup(d.running.Wait)
	kind := v1.MemoryDump
	d.vmi = &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "lab"}}
	d.vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("1Mi"))}
	d.vmi.Spec.UtilityVolumes = []v1.UtilityVolume{{
		Name: "dump", Type: &kind, PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "dump"},
	}}
	d.vmi.Status.Phase = v1.Running
	d.vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "dump", Phase: v1.HotplugVolumeAttachedToNode, MemoryDumpVolume: &v1.DomainMemoryDumpInfo{ClaimName: "dump"},
		HotplugVolume: &v1.HotplugVolumeStatus{AttachPodName: "hp", AttachPodUID: "uid"},
	}}
	conn, _ := guesttest.StartQEMU(t, append(args, "-device", "loader,addr=0x1000000,data=0x6b636479724421,data-len=8")...)
	d.restart()
	monitor, err := qmp.New(t.Context(), conn, func(e qmp.Event) {
		if d.concern.HandleEvent(e) {
			d.wake()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = monitor.Close() })
	d.monitor = monitor
	return d
}

func (d *dumped) wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

// restart is the death of virt-handler: the next one knows nothing.
func (d *dumped) restart() {
	if d.concern != nil {
		d.concern.Close()
		d.running.Wait() // a dead process does nothing more
	}
	d.concern = New(Env{
		Volume: func(context.Context, types.UID, string) (*podpath.Volume, error) {
			folder, err := podpath.Open(d.folder)
			return &podpath.Volume{Folder: folder}, err
		},
		Go: d.running.Go, Wake: d.wake, Now: time.Now,
	}, logr.Discard())
	d.t.Cleanup(d.concern.Close)
}

func (d *dumped) status() *v1.VolumeStatus { return &d.vmi.Status.VolumeStatus[0] }

// step runs one round, and returns the actions that it has begun.
func (d *dumped) step() []memorydump.Action {
	d.t.Helper()
	pod := hotplug.Pod{Name: "hp", UID: "uid", Running: true, Volumes: []hotplug.Volume{{Name: "dump", Claim: "dump"}}}
	r := concern.Round{VMI: d.vmi.DeepCopy(), AttachmentPods: []hotplug.Pod{pod}, Now: time.Now()}
	if d.podGone {
		r.AttachmentPods = nil
	}
	seen, err := d.concern.Observe(d.t.Context(), concern.QueryOf(d.monitor), r)
	if err != nil {
		d.t.Fatal(err)
	}
	d.last = d.concern.Decide(r, seen)
	facts := vmihandler.Guest{}
	d.concern.Report(d.last, &facts)
	if p := facts.Plugged["dump"]; p.Phase != "" {
		s := d.status()
		s.Phase, s.Message, s.MemoryDumpVolume = p.Phase, p.Message, p.Dump
	}
	var begun []memorydump.Action
	for _, decision := range d.last.decisions {
		if decision.Action != memorydump.Rest {
			begun = append(begun, decision.Action)
		}
	}
	if d.last.Due {
		var monitor concern.Monitor = d.monitor
		if d.acting != nil {
			monitor = d.acting
		}
		if err := d.concern.Act(d.t.Context(), monitor, r, d.last); err != nil {
			d.t.Fatal(err)
		}
		d.wake()
	}
	d.acted = append(d.acted, begun...)
	return begun
}

// until runs rounds until the status has one of the phases.
func (d *dumped) until(phases ...v1.VolumePhase) {
	d.t.Helper()
	for timeout := time.After(guesttest.Patience); ; {
		before := d.status().Phase
		d.step()
		for _, phase := range phases {
			if d.status().Phase == phase {
				return
			}
		}
		if d.status().Phase != before {
			continue
		}
		select {
		case <-d.woken:
		case <-timeout:
			d.t.Fatalf("it has stopped at %+v with %+v", d.status(), d.last)
		}
	}
}

// reaches runs rounds until one begins the action.
func (d *dumped) reaches(action memorydump.Action) {
	d.t.Helper()
	for timeout := time.After(guesttest.Patience); ; {
		before := d.status().Phase
		if begun := d.step(); len(begun) == 1 && begun[0] == action {
			return
		}
		if d.status().Phase != before {
			continue
		}
		select {
		case <-d.woken:
		case <-timeout:
			d.t.Fatalf("it never comes to %s: %+v", action, d.last)
		}
	}
}

func (d *dumped) names() string {
	d.t.Helper()
	entries, err := os.ReadDir(d.folder)
	if err != nil {
		d.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// whole checks that the file of the status is a dump of the guest, which has 64 MiB, and the only one.
func (d *dumped) whole() {
	d.t.Helper()
	s := d.status()
	if s.Phase != v1.MemoryDumpVolumeCompleted || s.MemoryDumpVolume.EndTimestamp == nil {
		d.t.Fatalf("the status is %+v", s)
	}
	if got := d.names(); got != s.MemoryDumpVolume.TargetFileName {
		d.t.Errorf("the claim has %s, want %s", got, s.MemoryDumpVolume.TargetFileName)
	}
	file := filepath.Join(d.folder, s.MemoryDumpVolume.TargetFileName)
	notes, memory, found := read(d.t, file)
	if notes == 0 || memory < 64<<20 || !found {
		d.t.Errorf("the dump has %d notes and %d bytes of memory, its pattern: %v", notes, memory, found)
	}
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil || st.Uid != 107 || st.Gid != 107 || st.Mode&0o777 != 0o640 {
		d.t.Errorf("the file belongs to %d:%d with mode %o (%v)", st.Uid, st.Gid, st.Mode, err)
	}
}

// read returns the number of a dump's notes, the bytes of the guest's memory, and whether the pattern is in its place.
func read(t *testing.T, file string) (notes int, memory uint64, found bool) {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_NOTE {
			notes++
		}
		if p.Type != elf.PT_LOAD {
			continue
		}
		memory += p.Filesz
		if address < p.Paddr || p.Paddr+p.Filesz <= address {
			continue
		}
		text := make([]byte, 8)
		if _, err := p.ReadAt(text, int64(address-p.Paddr)); err != nil {
			t.Fatal(err)
		}
		found = binary.LittleEndian.Uint64(text)&0xffffffffffffff == pattern
	}
	return notes, memory, found
}

// again is another request for the same claim.
func (d *dumped) again() {
	s := d.status()
	s.Phase, s.MemoryDumpVolume = v1.HotplugVolumeAttachedToNode, &v1.DomainMemoryDumpInfo{ClaimName: "dump"}
}

func TestTheMemoryIsDumped(t *testing.T) {
	d := start(t, t.TempDir())
	d.until(v1.MemoryDumpVolumeCompleted)
	d.whole()
	for range 3 { // a repeated round changes nothing
		if before := *d.status(); len(d.step()) > 0 || *d.status().MemoryDumpVolume.EndTimestamp != *before.MemoryDumpVolume.EndTimestamp {
			t.Errorf("after its end it goes on: %+v", d.last)
		}
	}
	if !d.last.Settled || d.last.Unsettled {
		t.Errorf("after its end it is %+v", d.last.Next)
	}
	d.again()
	d.until(v1.MemoryDumpVolumeCompleted)
	d.whole()
}

// TestTheNextVirtHandlerFinishes lets virt-handler die after each action.
func TestTheNextVirtHandlerFinishes(t *testing.T) {
	for _, action := range []memorydump.Action{memorydump.Prepare, memorydump.Send, memorydump.Finish} {
		t.Run(string(action), func(t *testing.T) {
			d := start(t, t.TempDir())
			d.reaches(action)
			d.restart()
			d.until(v1.MemoryDumpVolumeCompleted)
			d.whole()
		})
	}
}

// A file of an earlier dump that QEMU completed is no proof that this one was begun.
func TestAnEarlierDumpIsNotTakenForThis(t *testing.T) {
	d := start(t, t.TempDir())
	d.until(v1.MemoryDumpVolumeCompleted)
	if err := os.Remove(filepath.Join(d.folder, d.status().MemoryDumpVolume.TargetFileName)); err != nil {
		t.Fatal(err)
	}
	d.again()
	d.reaches(memorydump.Prepare)
	d.restart()
	d.acted = nil
	d.until(v1.MemoryDumpVolumeCompleted)
	d.whole()
	sent := 0
	for _, action := range d.acted {
		if action == memorydump.Send {
			sent++
		}
	}
	if sent != 1 {
		t.Errorf("the actions were %v", d.acted)
	}
}

func smallFileSystem(t *testing.T, size string) string {
	t.Helper()
	needRoot(t)
	folder := t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size="+size); err != nil {
		t.Fatalf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return folder
}

func TestAClaimBecomesFull(t *testing.T) {
	d := start(t, smallFileSystem(t, "110m"), "-m", "256")
	d.until(v1.MemoryDumpVolumeFailed)
	if s := d.status(); !strings.Contains(s.Message, "QEMU could not write the dump: ") || !strings.Contains(s.Message, "No space left on device") ||
		!strings.Contains(s.Message, "(the PVC dump had ") || s.MemoryDumpVolume.EndTimestamp == nil {
		t.Errorf("the status is %+v", s)
	}
	if left := d.names(); left != "" {
		t.Errorf("the claim keeps %s", left)
	}
}

func TestAClaimIsTooFull(t *testing.T) {
	d := start(t, smallFileSystem(t, "50m"))
	d.until(v1.MemoryDumpVolumeFailed)
	if want := "the PVC dump has 50Mi left, and a dump of the guest's memory needs 101Mi"; !strings.Contains(d.status().Message, want) {
		t.Errorf("it says %q, want %q", d.status().Message, want)
	}
	for _, action := range d.acted {
		if action == memorydump.Send {
			t.Error("QEMU was stopped for it")
		}
	}
}

// lateMonitor does not get QEMU's answer to a dump in time. The command may be lost, too.
type lateMonitor struct {
	*qmp.Client
	lost bool
}

func (m lateMonitor) Execute(ctx context.Context, command string, args, result any) error {
	if command != "dump-guest-memory" {
		return m.Client.Execute(ctx, command, args, result)
	}
	if !m.lost {
		if err := m.Client.Execute(ctx, command, args, result); err != nil {
			return err
		}
	}
	return fmt.Errorf("waiting for the answer: %w", context.DeadlineExceeded)
}

// QEMU flushes the disks before it answers, which may take longer than a command may.
func TestQEMUBeginsLate(t *testing.T) {
	d := start(t, t.TempDir())
	d.acting = lateMonitor{d.monitor, true}
	d.until(v1.MemoryDumpVolumeFailed)
	if left := d.names(); left != "" || !strings.Contains(d.status().Message, "QEMU could not write the dump") {
		t.Errorf("the claim keeps %q, and the status is %+v", left, d.status())
	}
	d.again()
	d.acting = lateMonitor{d.monitor, false}
	d.until(v1.MemoryDumpVolumeFailed, v1.MemoryDumpVolumeCompleted)
	d.whole()
}

// A tenant plants links under the names of the dump: no file outside of the claim changes.
func TestNoLinkIsFollowed(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "shadow")
	if err := os.WriteFile(victim, []byte("the node's own"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := start(t, t.TempDir())
	d.step() // names the file
	partial := filepath.Join(d.folder, memorydump.Partial(d.status().MemoryDumpVolume.TargetFileName))
	if err := os.Symlink(victim, partial); err != nil {
		t.Fatal(err)
	}
	d.until(v1.MemoryDumpVolumeFailed, v1.MemoryDumpVolumeCompleted)
	d.again()
	d.reaches(memorydump.Send)
	partial = filepath.Join(d.folder, memorydump.Partial(d.status().MemoryDumpVolume.TargetFileName))
	if err := os.Rename(partial, partial+"-stolen"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, partial); err != nil {
		t.Fatal(err)
	}
	d.until(v1.MemoryDumpVolumeFailed, v1.MemoryDumpVolumeCompleted)
	if d.status().Phase == v1.MemoryDumpVolumeCompleted {
		t.Errorf("a link was taken for the dump: %+v", d.status())
	}
	text, err := os.ReadFile(victim)
	info, statErr := os.Stat(victim)
	if err != nil || statErr != nil || string(text) != "the node's own" || info.Mode().Perm() != 0o600 {
		t.Errorf("the victim has %q (%v, %v)", text, err, statErr)
	}
}

// The claim is released only when QEMU has finished, and nothing is left in it.
func TestARemovedDumpLeavesNothing(t *testing.T) {
	for _, action := range []memorydump.Action{memorydump.Prepare, memorydump.Send} {
		for _, dies := range []bool{false, true} {
			d := start(t, t.TempDir())
			d.reaches(action)
			d.vmi.Spec.UtilityVolumes = nil
			if dies {
				d.restart()
			}
			d.until(v1.HotplugVolumeUnMounted)
			if left := d.names(); left != "" {
				t.Errorf("removed after %s (virt-handler dies: %v), the claim keeps %s", action, dies, left)
			}
		}
	}
}

// Somebody has deleted the attachment pod and the claim: no pod will get it again.
func TestADumpWhoseClaimIsGoneCanBeRemoved(t *testing.T) {
	for _, action := range []memorydump.Action{memorydump.Prepare, memorydump.Send} {
		d := start(t, t.TempDir())
		d.reaches(action)
		d.vmi.Spec.UtilityVolumes, d.podGone = nil, true
		d.until(v1.HotplugVolumeUnMounted)
		r := concern.Round{VMI: d.vmi.DeepCopy()}
		r.VMI.Status.VolumeStatus = nil
		seen, err := d.concern.Observe(t.Context(), concern.QueryOf(d.monitor), r)
		if err != nil || len(seen.work) > 0 || len(d.concern.files) > 0 {
			t.Errorf("removed after %s, virt-handler keeps %+v and the files %v (%v)", action, seen.work, d.concern.files, err)
		}
	}
}

// QEMU is not asked about dumps of a guest that has none.
func TestAGuestWithoutADumpCostsNothing(t *testing.T) {
	c := New(Env{}, logr.Discard())
	vmi := &v1.VirtualMachineInstance{}
	seen, err := c.Observe(t.Context(), concern.Query{}, concern.Round{VMI: vmi})
	if plan := c.Decide(concern.Round{VMI: vmi}, seen); err != nil || plan.Due || plan.After != 0 || !plan.Settled {
		t.Errorf("%+v, %v", plan, err)
	}
}
