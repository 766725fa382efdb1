package driver

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/machine"
)

// bootHalt stops the guest's CPU for good.
var bootHalt = []byte{0xfa, 0xf4, 0xeb, 0xfc}

// bootable puts a boot sector on the claim of an attachment pod.
func (n *node) bootable(claim string, code []byte) {
	n.t.Helper()
	sector := make([]byte, 512)
	copy(sector, code)
	copy(sector[510:], []byte{0x55, 0xaa})
	f, err := os.OpenFile(n.image(claim), os.O_WRONLY, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(sector, 0); err != nil {
		n.t.Fatal(err)
	}
}

// spec returns the part of a change that a user makes before the VM starts; virt-controller's part comes later.
func spec(change func(*v1.VirtualMachineInstance)) func(*v1.VirtualMachineInstance) {
	return func(instance *v1.VirtualMachineInstance) {
		change(instance)
		instance.Status.VolumeStatus, instance.Annotations = nil, nil
	}
}

// status returns the rest of that change.
func status(change func(*v1.VirtualMachineInstance)) func(*v1.VirtualMachineInstance) {
	return func(instance *v1.VirtualMachineInstance) {
		before := instance.Spec.DeepCopy()
		change(instance)
		instance.Spec = *before
	}
}

var waits = reports(runstate.ReasonWaitingForVolumes, "")

// withoutScratch removes the guest's hard disk: SeaBIOS boots from the first one only.
func withoutScratch(instance *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	instance.Spec.Domain.Devices.Disks = instance.Spec.Domain.Devices.Disks[1:]
	instance.Spec.Volumes = instance.Spec.Volumes[1:]
	return instance
}

// halted starts a guest that waits for volume a on claim-a.
func (n *node) halted(bus v1.DiskBus, code []byte) (p *pod, h *handler, attachment *corev1.Pod) {
	n.t.Helper()
	attachment = n.attachmentPod(n.api.vmi, "attachment-1", map[string]string{"a": "claim-a"})
	n.bootable("claim-a", code)
	n.api.update(spec(want("a", "claim-a", bus, attachment)))
	p = n.newPod(n.api.vmi)
	h = n.startHandler(p)
	p.start()
	n.api.await(n.t, "a guest that waits for its volume", waits)
	return p, h, attachment
}

// comes brings the volume's attachment pod.
func (n *node) comes(h *handler, bus v1.DiskBus, attachment *corev1.Pod) {
	h.supervisor.PodSeen(attachment)
	n.api.update(status(want("a", "claim-a", bus, attachment)))
}

// asks returns the guest's run state from QEMU, and whether QEMU has the marker of a waiting guest.
func (n *node) asks(h *handler) (state string, waits bool) {
	n.t.Helper()
	m := n.machine(h, n.api.vmi.UID)
	var objects []struct{ Name string }
	n.execute(m, "qom-list", map[string]any{"path": "/objects"}, &objects)
	for _, o := range objects {
		waits = waits || o.Name == machine.WaitMarker
	}
	return n.runState(m), waits
}

// TestAGuestBootsFromItsHotpluggableDisk: only the disk's boot sector powers the machine off.
func TestAGuestBootsFromItsHotpluggableDisk(t *testing.T) {
	t.Parallel()
	for _, bus := range []v1.DiskBus{v1.DiskBusSCSI, v1.DiskBusVirtio} {
		t.Run(string(bus), func(t *testing.T) {
			n := newNode(t, withoutScratch(scheduled("boots-"+string(bus))))
			_, h, attachment := n.halted(bus, bootPowerOff)
			c := condition(n.api.await(t, "the reason", waits), v1.VirtualMachineInstanceReady)
			if !strings.Contains(c.Message, "may boot from a hotpluggable volume that is not attached yet: a.") {
				t.Errorf("Ready says %q", c.Message)
			}
			n.comes(h, bus, attachment)
			n.api.await(t, "the end of a guest that has booted", phase(v1.Succeeded))
		})
	}
}

// TestTheBootOrderCountsPluggedDisks: the guest starts with a bootable disk, and boots from the plugged one.
func TestTheBootOrderCountsPluggedDisks(t *testing.T) {
	instance := scheduled("order")
	instance.Spec.Domain.Devices.Disks[0].BootOrder = new(uint(2))
	n := newNode(t, instance)
	attachment := n.attachmentPod(n.api.vmi, "attachment-1", map[string]string{"a": "claim-a"})
	n.bootable("claim-a", bootPowerOff)
	change := want("a", "claim-a", v1.DiskBusSCSI, attachment)
	n.api.update(spec(func(instance *v1.VirtualMachineInstance) {
		change(instance)
		instance.Spec.Domain.Devices.Disks[2].BootOrder = new(uint(1))
	}))
	p := n.newPod(n.api.vmi)
	p.boot(bootHalt)
	h := n.startHandler(p)
	p.start()
	n.api.await(t, "a guest that waits for its volume", waits)
	n.comes(h, v1.DiskBusSCSI, attachment)
	n.api.await(t, "the end of a guest that has booted from a", phase(v1.Succeeded))
}

// TestAnotherHandlerStartsAGuestThatWaits: virt-handler is killed while the guest waits, and again when it runs, after
// which nobody resets it.
func TestAnotherHandlerStartsAGuestThatWaits(t *testing.T) {
	t.Parallel()
	n := newNode(t, scheduled("waits"))
	p, h, attachment := n.halted(v1.DiskBusSCSI, bootHalt)
	h.stop()
	h = n.startHandler(p)
	if state, waits := n.asks(h); state != runstate.Prelaunch || !waits {
		t.Fatalf("the guest that waits is in %s, its marker is there: %v", state, waits)
	}
	n.comes(h, v1.DiskBusSCSI, attachment)
	n.api.await(t, "a guest that runs", well)
	if state, waits := n.asks(h); state != runstate.Running || waits {
		t.Errorf("the guest that was started is in %s, its marker is there: %v", state, waits)
	}

	// A virt-handler died between the guest's start and the removal of the marker.
	m := n.machine(h, n.api.vmi.UID)
	marker := map[string]any{"qom-type": machine.MarkerType, "id": machine.WaitMarker}
	n.execute(m, "object-add", marker, nil)
	h.stop()
	h = n.startHandler(p)
	m = n.machine(h, n.api.vmi.UID)
	if err := m.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.api.await(t, "a guest that its user has paused", reports(runstate.ReasonPausedByUser, runstate.ReasonPausedByUser))
	if state, waits := n.asks(h); state == runstate.Running || waits {
		t.Errorf("the paused guest is in %s, its marker is there: %v", state, waits)
	}
}

func TestAGuestThatWaitsStartsWithoutAVolumeThatIsRemoved(t *testing.T) {
	n := newNode(t, scheduled("removed"))
	_, h, _ := n.halted(v1.DiskBusSCSI, bootHalt)
	n.api.update(dropA)
	n.api.await(t, "a guest that runs", well)
	if _, waits := n.asks(h); waits {
		t.Error("the marker is still there")
	}
}

// TestAGuestWaitsForDataOnlySoLong: a is not in the boot order, and its attachment pod
// never comes.
func TestAGuestWaitsForDataOnlySoLong(t *testing.T) {
	instance := scheduled("data")
	instance.Spec.Domain.Devices.Disks[0].BootOrder = new(uint(1))
	n := newNode(t, instance)
	_, h, attachment := n.halted(v1.DiskBusSCSI, bootHalt)
	n.api.update(func(instance *v1.VirtualMachineInstance) {
		for i := range instance.Status.PhaseTransitionTimestamps {
			at := &instance.Status.PhaseTransitionTimestamps[i].PhaseTransitionTimestamp
			at.Time = at.Add(-time.Minute)
		}
	})
	n.api.await(t, "a guest that runs", well)
	_, _, events := n.api.counts()
	if !strings.Contains(strings.Join(events, "\n"), "Warning "+reasonLate+": The guest starts without volumes that were not attached within 30s: a.") {
		t.Errorf("the events are %q", events)
	}
	n.comes(h, v1.DiskBusSCSI, attachment)
	n.api.await(t, "volume a Ready", in("a", v1.VolumeReady))
}

// TestAUserPausesAGuestThatWaits: the volume comes, and the guest stays stopped until its user unpauses it.
func TestAUserPausesAGuestThatWaits(t *testing.T) {
	instance := withoutScratch(scheduled("paused"))
	instance.Spec.StartStrategy = new(v1.StartStrategyPaused)
	n := newNode(t, instance)
	attachment := n.attachmentPod(n.api.vmi, "attachment-1", map[string]string{"a": "claim-a"})
	n.bootable("claim-a", bootPowerOff)
	n.api.update(spec(want("a", "claim-a", v1.DiskBusSCSI, attachment)))
	p := n.newPod(n.api.vmi)
	h := n.startHandler(p)
	p.start()
	pausedAndWaits := reports(runstate.ReasonWaitingForVolumes, runstate.ReasonPausedByUser)
	n.api.await(t, "a guest that waits and is paused", pausedAndWaits)
	m := n.machine(h, instance.UID)
	if err := m.Pause(t.Context()); err == nil {
		t.Error("a guest that is paused was paused")
	}
	if err := m.Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.api.await(t, "a guest that waits", waits)
	if err := m.Unpause(t.Context()); err == nil {
		t.Error("a guest that is not paused was unpaused")
	}
	if err := m.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.api.await(t, "a guest that waits and is paused", pausedAndWaits)
	n.comes(h, v1.DiskBusSCSI, attachment)
	n.api.await(t, "a guest that is paused", reports(runstate.ReasonPausedByUser, runstate.ReasonPausedByUser))
	if state, waits := n.asks(h); state != runstate.Prelaunch || waits {
		t.Errorf("the paused guest is in %s, its marker is there: %v", state, waits)
	}
	if err := m.Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.api.await(t, "the end of a guest that has booted", phase(v1.Succeeded))
}

// TestAFailedPlugHoldsNoGuestUp: another program locks the disk during the first plug.
func TestAFailedPlugHoldsNoGuestUp(t *testing.T) {
	t.Parallel()
	n := newNode(t, withoutScratch(scheduled("locked")))
	_, h, attachment := n.halted(v1.DiskBusSCSI, bootPowerOff)
	unlock := lockImage(t, n.image("claim-a"))
	n.comes(h, v1.DiskBusSCSI, attachment)
	n.api.await(t, "the reason why a does not come", func(instance *v1.VirtualMachineInstance) bool {
		return strings.Contains(volume(instance, "a").Message, "lock")
	})
	unlock()
	n.api.await(t, "the end of a guest that has booted", phase(v1.Succeeded))
}

func TestDeletingAGuestThatWaitsTakesNoGracePeriod(t *testing.T) {
	instance := scheduled("deleted")
	instance.Spec.TerminationGracePeriodSeconds = new(int64(3600))
	n := newNode(t, instance)
	n.halted(v1.DiskBusSCSI, bootHalt)
	n.api.update(remove)
	n.api.await(t, "the end", func(instance *v1.VirtualMachineInstance) bool { return instance.IsFinal() })
}

// lockImage locks an image like a writing QEMU: byte 201 is the lock that another writer finds.
func lockImage(t *testing.T, path string) (unlock func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	const writes, others, length = 101, 201, 1
	for _, at := range []int64{writes, others} {
		lock := unix.Flock_t{Type: unix.F_RDLCK, Start: at, Len: length}
		if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
			t.Fatal(err)
		}
	}
	return func() { f.Close() }
}
