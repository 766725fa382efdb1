package driver

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugspec"
)

// force changes the VMI like virt-api does for a forced removal.
func force(volume string) func(*v1.VirtualMachineInstance) {
	return func(instance *v1.VirtualMachineInstance) {
		if err := hotplugspec.NoteForced(instance, volume); err != nil {
			panic(err)
		}
	}
}

// forget changes the VMI like virt-controller does when a volume is out and no pod holds it.
func forget(volume string) func(*v1.VirtualMachineInstance) {
	return func(instance *v1.VirtualMachineInstance) {
		list := instance.Status.VolumeStatus[:0:0]
		for _, s := range instance.Status.VolumeStatus {
			if s.Name != volume {
				list = append(list, s)
			}
		}
		instance.Status.VolumeStatus = list
		hotplugspec.SettleForced(instance)
	}
}

// TestAVolumeIsForcedOutOfAGuestThatDoesNotLetGo: the test's machine has only its firmware, which does not answer PCI
// hotplug. The device that is left in the guest reserves the volume's name until the guest restarts, also under another
// virt-handler.
func TestAVolumeIsForcedOutOfAGuestThatDoesNotLetGo(t *testing.T) {
	t.Parallel()
	n := newNode(t, scheduled("forced"))
	p, h := n.running()
	attachment := n.attachmentPod(n.api.vmi, "attachment-1", map[string]string{"a": "claim-a"})
	h.supervisor.PodSeen(attachment)
	n.api.update(want("a", "claim-a", v1.DiskBusVirtio, attachment))
	n.api.await(t, "volume a Ready", in("a", v1.VolumeReady))
	n.api.update(dropA)
	n.api.await(t, "volume a Detaching", in("a", v1.HotplugVolumeDetaching))

	n.api.update(force("a"))
	out := n.api.await(t, "volume a UnMountedFromPod", in("a", v1.HotplugVolumeUnMounted))
	if s := volume(out, "a"); s.Reason != "VolumeForcedOut" || !strings.Contains(s.Message, "by force") {
		t.Errorf("the status is %+v", s)
	}
	if d := h.disks(t, out)["a"]; d.Stage != diskhotplug.Detached {
		t.Errorf("QEMU has %+v", d)
	}
	n.api.await(t, "the event VolumeForcedOut", func(*v1.VirtualMachineInstance) bool {
		return strings.Contains(strings.Join(n.api.events, "\n"), "Warning VolumeForcedOut")
	})

	h.stop()
	n.api.update(forget("a"))
	n.api.update(want("a", "claim-a", v1.DiskBusVirtio, attachment))
	h = n.startHandler(p)
	h.supervisor.PodSeen(attachment)
	n.api.await(t, "the reason why a does not come", func(instance *v1.VirtualMachineInstance) bool {
		s := volume(instance, "a")
		return s.Phase == v1.HotplugVolumeAttachedToNode && s.Reason == "GuestKeepsForcedDisk"
	})
	h.reset(t, out)
	again := n.api.await(t, "volume a Ready again", in("a", v1.VolumeReady))
	if d := h.disks(t, again)["a"]; d.Stage != diskhotplug.Plugged || d.Detached {
		t.Errorf("QEMU has %+v", d)
	}
}

// reset presses the guest's reset button, and waits until QEMU has removed the device that the guest kept. QEMU does so
// when the vCPU has halted since. A loop of the firmware may never halt; an operating system often does.
func (h *handler) reset(t *testing.T, instance *v1.VirtualMachineInstance) {
	t.Helper()
	d, err := h.supervisor.Lookup(instance.Namespace, instance.Name, instance.UID)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	do := func(command string) {
		if err := d.QEMU.Monitor().Execute(ctx, command, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	do("system_reset")
	for h.disks(t, instance)["a"].Detached {
		do("stop")
		do("cont")
		time.Sleep(50 * time.Millisecond)
	}
}
