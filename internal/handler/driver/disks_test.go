package driver

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// plug plugs volumes of these names into the guest on node1, each on a claim of its own.
func (v *voyage) plug(bus v1.DiskBus, names ...string) {
	v.t.Helper()
	for _, name := range names {
		dir := filepath.Join(string(v.storage), "volume-of-claim-"+name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			v.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, layout.DiskImage), make([]byte, 1<<20), 0o666); err != nil {
			v.t.Fatal(err)
		}
		attachment := runningAttachmentPod(v.api.vmi, "attachment-"+name, map[string]string{name: "claim-" + name})
		v.from.handler.supervisor.PodSeen(attachment)
		v.api.update(want(name, "claim-"+name, bus, attachment))
		v.api.await(v.t, "volume "+name+" Ready", in(name, v1.VolumeReady))
	}
}

// hold records an attachment pod at the target that has a volume.
func (v *voyage) hold(name string) *corev1.Pod {
	v.t.Helper()
	return v.holdOn(name, "claim-"+name)
}

// holdOn does the same for a volume on the given claim there.
func (v *voyage) holdOn(name, claim string) *corev1.Pod {
	v.t.Helper()
	attachment := runningAttachmentPod(v.api.vmi, "incoming-"+name, map[string]string{name: claim})
	v.api.update(func(vmi *v1.VirtualMachineInstance) {
		r, err := hotplug.ReadRecord(vmi.Annotations)
		if err != nil {
			v.t.Error(err)
		}
		r.Incoming = &hotplug.Incoming{Migration: ours, Pods: []hotplug.AttachmentPod{{
			Name: attachment.Name, UID: attachment.UID, Volumes: []hotplug.Volume{{Name: name, Claim: claim}},
		}}}
		vmi.Annotations = map[string]string{hotplug.RecordAnnotation: r.Text()}
	})
	return attachment
}

// disk returns a plugged disk as the node's QEMU has it.
func (s *site) disk(name string) diskhotplug.Disk {
	s.t.Helper()
	c := s.model.monitor(s.t)
	defer func() { _ = c.Close() }()
	disks, err := diskhotplug.Observe(s.t.Context(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	return disks[name]
}

// TestPluggedDisksComeWithTheGuest: the target's QEMU starts when the attachment pods exist there, and has the disks at
// the source's places before it receives any of the guest. Afterwards the target's attachment pods hold them.
func TestPluggedDisksComeWithTheGuest(t *testing.T) {
	v := newVoyage(t)
	v.plug(v1.DiskBusSCSI, "a", "b")
	v.api.update(dropA)
	v.api.await(t, "volume a out of the guest", in("a", v1.HotplugVolumeUnMounted))
	want := v.from.disk("b").Number
	v.begin(nil)
	var seen atomic.Bool
	starts := v.to.model.Started
	v.to.model.Started = func(start launch.Start) error {
		if !seen.Load() {
			return errors.New("the disks are not on the node yet")
		}
		return starts(start)
	}
	v.to.start()
	attachment := v.hold("b")
	seen.Store(true)
	v.to.handler.supervisor.PodSeen(attachment)
	v.api.await(t, "the start", started)
	v.copies()
	if got := v.to.disk("b"); got.Stage != diskhotplug.Plugged || got.Number != want || got.Claim != "claim-b" {
		t.Errorf("the target has the disk %+v, the source at %d", got, want)
	}
	v.release()
	v.api.await(t, "the completion", completed)
	<-v.from.model.qemu.Ended()
	v.arrive()
	v.api.await(t, "the pod at the target named", func(vmi *v1.VirtualMachineInstance) bool {
		s := volume(vmi, "b")
		return s.Phase == v1.VolumeReady && s.HotplugVolume.AttachPodUID == attachment.UID
	})
	v.alone(v.to, v.from)
}

// moveClaim makes the disk of volume a move to another claim, which is empty.
func (v *voyage) moveClaim() {
	v.t.Helper()
	if err := os.Mkdir(filepath.Join(string(v.storage), "volume-of-claim-b"), 0o755); err != nil {
		v.t.Fatal(err)
	}
	v.api.update(func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.MigratedVolumes = volumemigration.Write([]volumemigration.Move{{Volume: "a", From: "claim-a", To: "claim-a"}})
	})
}

// TestAPluggedDiskIsCopiedToAnotherClaim: the target plugs the other claim, and receives its content before memory.
func TestAPluggedDiskIsCopiedToAnotherClaim(t *testing.T) {
	v := newVoyage(t)
	v.plug(v1.DiskBusSCSI, "a")
	v.moveClaim()
	from, node := v.from.model.qemu, machine.NodeName("a")
	from.Write(node)
	release := from.HoldMirrors()
	v.begin(nil)
	v.to.start()
	attachment := v.holdOn("a", "claim-a")
	v.to.handler.supervisor.PodSeen(attachment)
	v.api.await(t, "the start", started)
	v.mirrors("running")
	if got := v.to.disk("a"); got.Stage != diskhotplug.Plugged || got.Claim != "claim-a" || got.Size != 1<<20 {
		t.Errorf("the target has the disk %+v", got)
	}
	if got := volume(v.api.vmi, "a"); got.PersistentVolumeClaimInfo.ClaimName != "claim-a" {
		t.Errorf("before the guest has arrived, the status says %+v", got)
	}
	if status := from.MigrationStatus(); status != "" {
		t.Errorf("before the disk is copied, the migration is %s", status)
	}
	release()
	v.mirrors("ready")
	v.copies()
	from.Write(node)
	v.release()
	v.api.await(t, "the completion", completed)
	<-from.Ended()
	to := v.to.model.qemu
	if here, there := from.Content(node), to.Content(node); here != 2 || there != 2 || len(to.Exports()) > 0 {
		t.Errorf("%d writes are on the source's disk, and %d on the target's, which others may write to: %v", here, there, to.Exports())
	}
	v.api.update(func(vmi *v1.VirtualMachineInstance) {
		moves, volumes := volumemigration.Of(vmi), hotplug.Arrive(vmi)
		vmi.Status = vmistatus.Project(vmi, vmistatus.Controller, vmistatus.Facts{Now: time.Now(), Migration: vmistatus.Migration{
			Of: ours, Arrived: &vmistatus.Arrival{Image: "image", Volumes: volumes},
		}})
		vmi.Spec = volumemigration.Arrive(&vmi.Spec, moves)
	})
	arrived := v.api.await(t, "the disk on its claim", func(vmi *v1.VirtualMachineInstance) bool {
		s := volume(vmi, "a")
		return s.Phase == v1.VolumeReady && s.Reason == "VolumeReady" && s.HotplugVolume.AttachPodUID == attachment.UID
	})
	if got := volume(arrived, "a").PersistentVolumeClaimInfo.ClaimName; got != "claim-a" {
		t.Errorf("the guest has its disk on %s", got)
	}
	v.alone(v.to, v.from)
}

// TestACopyOfAPluggedDiskComesToNothing: the guest keeps its claim.
func TestACopyOfAPluggedDiskComesToNothing(t *testing.T) {
	for name, happen := range map[string]func(*voyage){
		"the target's QEMU ends": func(v *voyage) { v.to.model.qemu.Exit() },
		"it is aborted":          func(v *voyage) { v.tell(vmistatus.Migration{Abort: true}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			v := newVoyage(t)
			v.plug(v1.DiskBusSCSI, "a")
			v.moveClaim()
			from := v.from.model.qemu
			defer from.HoldMirrors()()
			v.begin(nil)
			v.to.start()
			v.to.handler.supervisor.PodSeen(v.holdOn("a", "claim-a"))
			v.mirrors("running")
			happen(v)
			failed := v.api.await(t, "the failure", failedNow)
			<-v.to.model.qemu.Ended()
			v.alone(v.from, v.to)
			awaitTrue(t, "the end of the copies", func() bool { return len(from.Jobs()) == 0 && from.NodeSize("m-a") == 0 })
			if s, has := volume(failed, "a"), v.from.disk("a"); s.Phase != v1.VolumeReady || s.PersistentVolumeClaimInfo.ClaimName != "claim-a" || has.Claim != "claim-a" {
				t.Errorf("the guest has %+v, and the status says %+v", has, s)
			}
		})
	}
}

// TestAVirtHandlerIsRestartedWhileDisksComeAlong: the next one finds the disks in QEMU, and hears again to which
// devices they belong.
func TestAVirtHandlerIsRestartedWhileDisksComeAlong(t *testing.T) {
	for name, side := range map[string]func(*voyage) *site{
		"at the source": func(v *voyage) *site { return v.from },
		"at the target": func(v *voyage) *site { return v.to },
	} {
		t.Run(name, func(t *testing.T) {
			v := newVoyage(t)
			v.plug(v1.DiskBusSCSI, "b")
			v.begin(nil)
			v.to.start()
			attachment := v.hold("b")
			v.to.handler.supervisor.PodSeen(attachment)
			v.api.await(t, "the address", addressed)
			restarted := side(v)
			restarted.restart()
			restarted.handler.supervisor.PodSeen(map[*site]*corev1.Pod{
				v.from: runningAttachmentPod(v.api.vmi, "attachment-b", map[string]string{"b": "claim-b"}), v.to: attachment,
			}[restarted])
			v.release()
			done := v.api.await(t, "an end of the migration", func(vmi *v1.VirtualMachineInstance) bool { return completed(vmi) || failedNow(vmi) })
			if done.Status.MigrationState.Completed {
				v.alone(v.to, v.from)
				return
			}
			v.alone(v.from, v.to)
		})
	}
}

// TestAGuestThatReleasesADiskIsNotSent: the source has listed a disk for the target, and the guest releases it before
// the migration can begin.
func TestAGuestThatReleasesADiskIsNotSent(t *testing.T) {
	v := newVoyage(t)
	v.plug(v1.DiskBusSCSI, "a")
	v.begin(nil)
	asked := make(chan struct{}, 1)
	starts := v.to.model.Started
	v.to.model.Started = func(start launch.Start) error {
		err := starts(start)
		v.to.model.qemu.Override("device_add", func(json.RawMessage) (any, error) {
			select {
			case asked <- struct{}{}:
			default:
			}
			return nil, errors.New("not yet")
		})
		return err
	}
	v.to.start()
	v.to.handler.supervisor.PodSeen(v.hold("a"))
	select {
	case <-asked: // so the target knows the list of disks
	case <-time.After(patience):
		t.Fatal("no disk is brought to the target")
	}
	v.from.ejects("a")
	done := v.api.await(t, "the failure", failedNow)
	if m := done.Status.MigrationState; m.FailureReason != "the guest has released a disk while its migration was prepared" || m.StartTimestamp != nil {
		t.Errorf("the migration says %+v", m)
	}
	if n := v.from.model.qemu.Executed("migrate"); n > 0 {
		t.Errorf("QEMU was told %d times to migrate", n)
	}
	v.alone(v.from, v.to)
}

// ejects makes the guest on a node release the device of a volume without a request.
func (s *site) ejects(volume string) {
	s.t.Helper()
	c := s.model.monitor(s.t)
	defer func() { _ = c.Close() }()
	if err := c.Execute(s.t.Context(), "device_del", map[string]any{"id": machine.DiskID(volume)}, nil); err != nil {
		s.t.Fatal(err)
	}
}

// TestAGuestThatKeepsAForcedDiskIsNotSent: the target's QEMU has no counterpart of the device that is left in the
// guest.
func TestAGuestThatKeepsAForcedDiskIsNotSent(t *testing.T) {
	v := newVoyage(t)
	v.plug(v1.DiskBusVirtio, "a")
	v.api.update(dropA)
	v.api.await(t, "volume a Detaching", in("a", v1.HotplugVolumeDetaching))
	v.api.update(force("a"))
	v.api.await(t, "volume a out by force", in("a", v1.HotplugVolumeUnMounted))
	v.api.update(forget("a"))
	v.begin(nil)
	v.to.start()
	done := v.api.await(t, "the failure", failedNow)
	const want = "the guest still has the disks of volumes that were taken from it by force (a): it can be migrated when it has released them or was restarted"
	if m := done.Status.MigrationState; m.FailureReason != want || m.StartTimestamp != nil {
		t.Errorf("the migration says %+v", m)
	}
	v.alone(v.from, v.to)
}
