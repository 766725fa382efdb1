package driver

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/runningguest"
	"drydock.dev/drydock/internal/handler/vmireport"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
	"drydock.dev/drydock/test/shipped"
)

// These are boot sectors, at 0000:7c00 in real mode.
var (
	// bootWriter writes 16 MiB to the disk, 32 KiB at a time, by the BIOS, and
	// then halts: from sector 2048 on, int 13h function 43h with drive 80h.
	bootWriter = []byte{
		0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, // ax, ds, ss = 0; sp = 7c00
		0xb8, 0x00, 0x10, 0x8e, 0xc0, 0x31, 0xff, 0xb8, 0xa5, 0x5a, // es = 1000; di = 0; ax = 5aa5
		0xb9, 0x00, 0x40, 0xfc, 0xf3, 0xab, // cx = 4000; cld; rep stosw
		0xbd, 0x00, 0x02, // bp = 512
		0xbe, 0x33, 0x7c, 0xb8, 0x00, 0x43, 0xb2, 0x80, 0xcd, 0x13, // next: si = packet; ax = 4300; dl = 80; int 13
		0x72, 0xf4, 0x83, 0x06, 0x3b, 0x7c, 0x40, 0x4d, 0x75, 0xec, // jc next; add [sector], 64; dec bp; jnz next
		0xf4, 0xeb, 0xfd, // hlt; jmp -1
		0x10, 0x00, 0x40, 0x00, 0x00, 0x00, 0x00, 0x10, // packet: 64 sectors from 1000:0000
		0x00, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // to sector 2048
	}
	// bootPanic tells the ISA panic device of a panic: out 505, 1.
	bootPanic = []byte{0xba, 0x05, 0x05, 0xb0, 0x01, 0xee, 0xf4, 0xeb, 0xfd}
	// bootSuspend and bootPowerOff write SLP_EN with the type of S3 and of S5 to
	// the chipset's PM1a_CNT: out 604, 2400 and out 604, 2000.
	bootSuspend  = []byte{0xba, 0x04, 0x06, 0xb8, 0x00, 0x24, 0xef, 0xf4, 0xeb, 0xfd}
	bootPowerOff = []byte{0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef, 0xf4, 0xeb, 0xfd}
)

// boot makes scratch a boot disk. It keeps an existing one.
func (p *pod) boot(code []byte) {
	p.t.Helper()
	p.makeVolumes()
	raw := filepath.Join(p.t.TempDir(), "boot.img")
	sector := make([]byte, 1<<20)
	copy(sector, code)
	copy(sector[510:], []byte{0x55, 0xaa})
	if err := os.WriteFile(raw, sector, 0o600); err != nil {
		p.t.Fatal(err)
	}
	image := filepath.Join(p.volume(layout.EphemeralVolume), filepath.Base(layout.OverlayFile("scratch")))
	for _, args := range [][]string{
		{"convert", "-f", "raw", "-O", "qcow2", raw, image}, {"resize", "-q", image, "1G"},
	} {
		if out, err := exec.Command(shipped.Program(p.t, "qemu-img"), args...).CombinedOutput(); err != nil {
			p.t.Fatalf("qemu-img %v: %v\n%s", args, err, out)
		}
	}
	if err := os.Chown(image, layout.QEMUUser, layout.QEMUUser); err != nil {
		p.t.Fatal(err)
	}
}

// limit puts the pod's disks on a separate file system that is too small for bootWriter.
func (p *pod) limit() {
	p.t.Helper()
	p.makeVolumes()
	dir := p.volume(layout.EphemeralVolume)
	options := fmt.Sprintf("size=8m,mode=700,uid=%d,gid=%d", layout.QEMUUser, layout.QEMUUser)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			p.t.Error(err)
		}
	})
}

// grow makes that file system large enough.
func (p *pod) grow() {
	p.t.Helper()
	if err := syscall.Mount("tmpfs", p.volume(layout.EphemeralVolume), "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
		p.t.Fatal(err)
	}
}

// says returns the reasons of Ready False and of Paused from the VMI, each empty if the condition has the other status.
func says(instance *v1.VirtualMachineInstance) (ready, paused string) {
	if c := condition(instance, v1.VirtualMachineInstanceReady); c != nil && c.Status == corev1.ConditionFalse {
		ready = c.Reason
	}
	if c := condition(instance, v1.VirtualMachineInstancePaused); c != nil && c.Status == corev1.ConditionTrue {
		paused = c.Reason
	}
	return ready, paused
}

// reports reports whether an existing VMI has these reasons.
func reports(wantReady, wantPaused string) func(*v1.VirtualMachineInstance) bool {
	return func(instance *v1.VirtualMachineInstance) bool {
		ready, paused := says(instance)
		return instance.Status.Phase == v1.Running && ready == wantReady && paused == wantPaused
	}
}

var well = reports("", "")

// ioErrors returns the events about I/O errors.
func (a *api) ioErrors() []string {
	_, _, events := a.counts()
	var found []string
	for _, e := range events {
		if strings.Contains(e, vmireport.ReasonIOError) {
			found = append(found, e)
		}
	}
	return found
}

// withoutSpace returns a guest that was stopped because its disk has no space. The node's clock stands from before the
// first error, so the test decides when the guest is resumed, and how long it has run then.
func withoutSpace(t *testing.T, name string) (*node, *pod, *handler) {
	t.Helper()
	n, p := paused(t, name)
	p.limit()
	h := n.startPaused(p, bootWriter)
	n.pass(0)
	if err := n.machine(h, n.api.vmi.UID).Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.api.await(t, "a guest stopped by its disk", reports(runstate.ReasonPausedIOError, runstate.ReasonPausedIOError))
	return n, p, h
}

// startedPaused returns a guest that boots the code as soon as it is unpaused.
func startedPaused(t *testing.T, name string, code []byte) (*node, *pod, *handler) {
	t.Helper()
	n, p := paused(t, name)
	return n, p, n.startPaused(p, code)
}

// paused returns the pod of a guest that starts paused.
func paused(t *testing.T, name string) (*node, *pod) {
	t.Helper()
	instance := scheduled(name)
	instance.Spec.StartStrategy = new(v1.StartStrategyPaused)
	n := newNode(t, instance)
	return n, n.newPod(n.api.vmi)
}

// startPaused starts such a guest.
func (n *node) startPaused(p *pod, code []byte) *handler {
	n.t.Helper()
	p.boot(code)
	h := n.startHandler(p)
	p.start()
	n.api.await(n.t, "a guest that was started paused", reports(runstate.ReasonPausedByUser, runstate.ReasonPausedByUser))
	return h
}

func TestADiskWithoutSpaceStopsTheGuestUntilThereIsSome(t *testing.T) {
	t.Parallel()
	n, p, first := withoutSpace(t, "full")
	stopped := n.api.await(t, "a guest stopped by its disk", reports(runstate.ReasonPausedIOError, runstate.ReasonPausedIOError))
	const message = "The guest is stopped: there is no space left for disk scratch. It continues by itself when that works again."
	for _, kind := range []v1.VirtualMachineInstanceConditionType{v1.VirtualMachineInstanceReady, v1.VirtualMachineInstancePaused} {
		if c := condition(stopped, kind); c.Message != message {
			t.Errorf("%s says %q", kind, c.Message)
		}
	}

	// Attempts to resume the guest, and killed virt-handlers, don't change the VMI's status.
	before, _, _ := n.api.counts()
	n.awaitAttempts(first, n.machine(first, "full"), 2)
	first.stop()
	p.awaitIOError()
	second := n.startHandler(p)
	n.awaitAttempts(second, n.takenOver(second), 1)
	second.stop()
	p.awaitIOError()
	third := n.startHandler(p)
	m := n.takenOver(third)
	if after, _, _ := n.api.counts(); after != before {
		t.Errorf("attempts to resume the guest wrote %v", n.api.patches[before:])
	}

	// The user's pause keeps the guest stopped when there is space again, also under the next virt-handler.
	if err := m.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.api.await(t, "a pause besides", reports(runstate.ReasonPausedIOError, runstate.ReasonPausedByUser))
	n.stopped.Store(nil)
	p.grow()
	third.stop()
	fourth := n.startHandler(p)
	m = n.machine(fourth, "full")
	time.Sleep(3 * time.Second) // the absence of a resume has no event
	if state := n.runState(m); state != runstate.IOError {
		t.Errorf("a guest that its user has paused is %s", state)
	}
	if err := m.Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.api.await(t, "a guest that runs", well)
	if diff := cmp.Diff([]string{"Warning IOerror: " + message}, n.api.ioErrors()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	p.awaitWritten()
}

func TestAGuestResumesByItselfWhenItsDiskWorksAgain(t *testing.T) {
	t.Parallel()
	n, p, _ := withoutSpace(t, "heals")
	p.grow()
	n.stopped.Store(nil)
	n.api.await(t, "a guest that runs", well)
	p.awaitWritten()
	if got := n.api.ioErrors(); len(got) != 1 {
		t.Errorf("events: %q", got)
	}
}

func TestAResetGetsAGuestAwayFromItsDisksError(t *testing.T) {
	t.Parallel()
	n, p, h := withoutSpace(t, "reset")
	m := n.machine(h, "reset")
	p.grow()
	if err := m.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.stopped.Store(nil)
	n.api.await(t, "a guest that runs", well)
	p.awaitWritten()
}

func TestAGuestThatPanicsAndStaysIsEnded(t *testing.T) {
	t.Parallel()
	n, _, h := startedPaused(t, "panics", bootPanic)
	m := n.machine(h, "panics")
	n.setAction(m, "panic", "pause")
	if err := m.Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	failed := n.api.await(t, "phase Failed", phase(v1.Failed))
	if failed.Status.Reason != "GuestPanicked" {
		t.Errorf("reason %q", failed.Status.Reason)
	}
	const crashed = "The VirtualMachineInstance crashed: the guest's kernel panicked."
	for _, reason := range []string{"Stopped", "GuestPanicked"} {
		n.api.await(t, "the event "+reason, func(*v1.VirtualMachineInstance) bool {
			return slices.Contains(n.api.events, "Warning "+reason+": "+crashed)
		})
	}
}

func TestAGuestThatHasPoweredOffAndStaysIsEnded(t *testing.T) {
	n, _, h := startedPaused(t, "off", bootPowerOff)
	m := n.machine(h, "off")
	n.setAction(m, "shutdown", "pause")
	if err := m.Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.api.await(t, "phase Succeeded", phase(v1.Succeeded))
}

func TestASuspendedGuestIsWokenUp(t *testing.T) {
	t.Parallel()
	n, p, h := startedPaused(t, "sleeps", bootSuspend)
	if err := n.machine(h, "sleeps").Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.api.await(t, "a suspended guest", reports(runstate.ReasonSuspended, ""))
	h.stop()
	before, _, _ := n.api.counts()
	m := n.machine(n.startHandler(p), "sleeps")
	if after, _, _ := n.api.counts(); after != before {
		t.Errorf("taking over wrote %v", n.api.patches[before:])
	}
	if err := m.Pause(t.Context()); err == nil || !strings.Contains(err.Error(), "The guest has suspended itself") {
		t.Errorf("pausing it: %v", err)
	}
	if err := m.Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Its firmware has no system to wake, and may boot and suspend again. The test checks the transition that was
	// written in between.
	n.api.await(t, "a guest that was woken up", func(*v1.VirtualMachineInstance) bool {
		return slices.ContainsFunc(n.api.patches[before:], func(patch string) bool {
			return strings.Contains(patch, `"type":"Ready","status":"True"`)
		})
	})
}

func TestAGuestThatHasMovedIsNotContinuedHere(t *testing.T) {
	n := newNode(t, scheduled("moved"))
	p := n.newPod(n.api.vmi)
	h := n.startHandler(p)
	p.start()
	n.api.await(t, "phase Running", well)
	m := n.machine(h, "moved")
	// A short path is the same in the pod.
	dir, err := os.MkdirTemp("", "target-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "target")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}()
	n.execute(m, "migrate", map[string]any{"uri": "unix:" + path}, nil)
	n.api.await(t, "a guest that has moved", reports(runstate.ReasonMigrated, ""))
	if err := m.Unpause(t.Context()); err == nil || !strings.Contains(err.Error(), "It does not continue here") {
		t.Errorf("unpausing it: %v", err)
	}
	if err := m.Pause(t.Context()); err == nil {
		t.Error("it was paused")
	}
	if state := n.runState(m); state != "postmigrate" {
		t.Errorf("it is %s", state)
	}
}

// TestWhatTheVMISaysInEachState puts a guest into each run state that it can leave: those of the table and an unknown
// one.
func TestWhatTheVMISaysInEachState(t *testing.T) {
	t.Parallel()
	n := newNode(t, scheduled("tour"))
	p := n.newPod(n.api.vmi)
	p.standIn = true
	h := n.startHandler(p)
	p.start()
	n.api.await(t, "phase Running", well)
	for _, state := range append(runstate.All(), runstate.Of("hibernating")) {
		if state.Action == runstate.End || state.Name == runstate.Running {
			continue
		}
		wantPaused := ""
		if state.Paused {
			wantPaused = state.Reason
		}
		p.pretend(t, state.Name)
		got := n.api.await(t, "what state "+state.Name+" says", reports(state.Reason, wantPaused))
		c := condition(got, v1.VirtualMachineInstanceReady)
		if state.Name != runstate.IOError && c.Message != state.Message {
			t.Errorf("in %s, Ready says %q, want %q", state.Name, c.Message, state.Message)
		}

		// The next virt-handler reports the same, so it writes nothing.
		before, _, _ := n.api.counts()
		h.stop()
		h = n.startHandler(p)
		m := n.machine(h, "tour")
		if err := m.Pause(t.Context()); (err == nil) != (state.Name == runstate.IOError) {
			t.Errorf("pausing a guest in %s: %v", state.Name, err)
		}
		if after, _, _ := n.api.counts(); after != before && state.Name != runstate.IOError {
			t.Errorf("in %s, taking over wrote %v", state.Name, n.api.patches[before:])
		}
		err := m.Unpause(t.Context())
		// The guest really runs, so QEMU has nothing to wake.
		if state.Name != runstate.Suspended && (err == nil) != (state.Outlook == runstate.Waits) {
			t.Errorf("unpausing a guest in %s: %v", state.Name, err)
		}
		p.pretend(t, "")
		n.api.await(t, "a guest that runs after "+state.Name, well)
	}
	if got := len(p.qemus()); got != 1 {
		t.Errorf("%d QEMUs run", got)
	}
}

// TestAGuestThatCannotContinueFails covers each run state that a guest cannot leave, under a virt-handler that sees the
// change and under one that finds the state.
func TestAGuestThatCannotContinueFails(t *testing.T) {
	t.Parallel()
	for _, state := range runstate.All() {
		if state.Action != runstate.End {
			continue
		}
		for _, found := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, found so: %v", state.Name, found), func(t *testing.T) {
				n := newNode(t, scheduled("ends"))
				p := n.newPod(n.api.vmi)
				p.standIn = true
				h := n.startHandler(p)
				p.start()
				n.api.await(t, "phase Running", well)
				n.machine(h, "ends")
				if found {
					h.stop()
				}
				p.pretend(t, state.Name)
				if found {
					n.startHandler(p)
				}
				ended := n.api.await(t, "the end", (*v1.VirtualMachineInstance).IsFinal)
				wantPhase := v1.Succeeded
				if state.Failure != "" {
					wantPhase = v1.Failed
				}
				if ended.Status.Phase != wantPhase || ended.Status.Reason != string(state.Failure) {
					t.Errorf("%s, reason %q", ended.Status.Phase, ended.Status.Reason)
				}
				c := condition(ended, v1.VirtualMachineInstanceReady)
				want := vmistatus.EndMessage(state.Failure)
				if state.Name == "internal-error" {
					want += " QEMU said: KVM internal error. Suberror: 1; emulation failure"
				}
				if c == nil || c.Status != corev1.ConditionFalse || !strings.HasPrefix(c.Message, want) && state.Failure != "" {
					t.Errorf("Ready says %v, want %q", c, want)
				}
			})
		}
	}
}

// TestPausingAGuestThatCannotContinueIsAnError: the verbs query the state themselves, since no event has reported it.
func TestPausingAGuestThatCannotContinueIsAnError(t *testing.T) {
	t.Parallel()
	for _, state := range runstate.All() {
		if state.Action != runstate.End {
			continue
		}
		for verb, do := range map[string]func(*runningguest.Guest, context.Context) error{
			"paused": (*runningguest.Guest).Pause, "unpaused": (*runningguest.Guest).Unpause, "reset": (*runningguest.Guest).Reset,
		} {
			t.Run(state.Name+", "+verb, func(t *testing.T) {
				n := newNode(t, scheduled("broken"))
				p := n.newPod(n.api.vmi)
				p.standIn = true
				h := n.startHandler(p)
				p.start()
				n.api.await(t, "phase Running", well)
				m := n.machine(h, "broken")
				p.pretend(t, state.Name+quietly)
				if err := do(m, t.Context()); err == nil || !strings.Contains(err.Error(), "VMI cannot be "+verb+": "+state.Message) {
					t.Errorf("the answer is %v", err)
				}
				n.api.await(t, "the end", (*v1.VirtualMachineInstance).IsFinal)
			})
		}
	}
}

func (n *node) runState(m *runningguest.Guest) string {
	n.t.Helper()
	var status struct{ Status string }
	n.execute(m, "query-status", nil, &status)
	return status.Status
}

// execute executes a command in QEMU.
func (n *node) execute(m *runningguest.Guest, command string, args, result any) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	if err := m.QEMU.Monitor().Execute(ctx, command, args, result); err != nil {
		n.t.Fatal(err)
	}
}

// setAction sets QEMU's reaction to an action of the guest.
func (n *node) setAction(m *runningguest.Guest, of, action string) {
	n.t.Helper()
	n.execute(m, "set-action", map[string]any{of: action}, nil)
}

// takenOver returns the guest once a virt-handler has found it. The node's clock advances only until then: failed steps
// are retried, and nobody resumes the guest.
func (n *node) takenOver(h *handler) *runningguest.Guest {
	n.t.Helper()
	var m *runningguest.Guest
	awaitTrue(n.t, "a guest that is taken over", func() bool {
		var err error
		if m, err = h.supervisor.Lookup("shop", "web", n.api.vmi.UID); err != nil {
			n.pass(10 * time.Millisecond)
		}
		return err == nil
	})
	return m
}

// awaitAttempts advances time until virt-handler has resumed the guest as often as wanted. While the guest runs, the
// clock advances by at most a second, too little for its disk to count as working: on a busy machine the guest may take
// long to write again.
func (n *node) awaitAttempts(h *handler, m *runningguest.Guest, want int) {
	n.t.Helper()
	awaitTrue(n.t, "attempts to have the guest continue", func() bool {
		known := m.QEMU.Observe()
		if known.Attempts < want && known.RunState == runstate.IOError {
			n.pass(time.Second)
			h.supervisor.WakeAll()
		}
		return known.Attempts >= want
	})
}

// awaitIOError waits until the guest, which may have been resumed, is stopped again. A test that needs the guest
// stopped can't begin earlier. No virt-handler may run, since QEMU has one monitor.
func (p *pod) awaitIOError() {
	p.t.Helper()
	dir, err := os.Open(p.volume(layout.PrivateVolume))
	if err != nil {
		p.t.Fatal(err)
	}
	defer dir.Close()
	// The folder's own path is too long for a socket.
	conn, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), layout.QMPSocket))
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	monitor, err := qmp.New(ctx, conn, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = monitor.Close() }()
	awaitTrue(p.t, "the end of an attempt to continue", func() bool {
		var status struct{ Status string }
		if err := monitor.Execute(ctx, "query-status", nil, &status); err != nil {
			p.t.Fatal(err)
		}
		return status.Status == runstate.IOError
	})
}

// awaitWritten waits until the guest's disk has everything that bootWriter writes.
func (p *pod) awaitWritten() {
	p.t.Helper()
	const size = 16 << 20
	image := filepath.Join(p.volume(layout.EphemeralVolume), filepath.Base(layout.OverlayFile("scratch")))
	written := int64(0)
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // no event tells of it
		info, err := os.Stat(image)
		if err != nil {
			p.t.Fatal(err)
		}
		if info.Size() > written {
			written, deadline = info.Size(), time.Now().Add(patience)
		}
		if info.Size() >= size {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the guest has written %d bytes, which are not %d", info.Size(), size)
		}
	}
}
