//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestVolumesLeaveAGuestThatRefuses ejects media from a guest's drives, and unplugs a disk that the guest does not
// release, because it has no driver for PCI hotplug. test/machine tests QEMU's and the guest's part; here the
// attachment pods must stay until the guest has lost the volume, and no longer.
func TestVolumesLeaveAGuestThatRefuses(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	claim(t, ns, "data", corev1.PersistentVolumeFilesystem, folderOnNode1(ns, "data"))
	vmi := onNode1(newVMI(ns, "refuses"))
	fromKernel(vmi)
	vmi.Spec.Domain.Firmware.KernelBoot.KernelArgs += " acpiphp.disable=1"
	for _, name := range media {
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{
			Name: name, DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSCSI}},
		})
	}
	boot(t, vmi)
	inTurn(t,
		chapter{"CDs are inserted and ejected", func(t *testing.T) { mediaComeAndGo(t, login(t, ns, "refuses")) }},
		chapter{"a disk is forced out", func(t *testing.T) { diskIsForcedOut(t, login(t, ns, "refuses")) }},
	)
}

// diskIsForcedOut plugs a disk into a guest that ignores unplug requests. The disk may be forced out only on demand,
// and only after the request. Then its claim must be free and the guest must run on; after a restart of the guest the
// volume can be plugged again.
func diskIsForcedOut(t *testing.T, g *guest) {
	t.Helper()
	ns := g.namespace
	do(t, ns, "addvolume", "refuses", "--volume-name=data", "--bus=virtio")
	g.volumeIs("data", v1.VolumeReady, "VolumeReady")
	g.run("echo 1 >/sys/bus/pci/rescan")
	eventually(t, "data in the guest", func(context.Context) error { return g.has("data", true) })
	device := g.device("data")
	g.run("echo kept | dd of=" + device + " conv=fsync")

	out, err := virtctl(t.Context(), "-n", ns, "removevolume", "refuses", "--volume-name=data", "--force")
	if err == nil || !strings.Contains(out, "Unable to force out volume [data] because it is not Detaching") {
		t.Errorf("forcing out what the guest was not asked for says (error: %v):\n%s", err, out)
	}
	do(t, ns, "removevolume", "refuses", "--volume-name=data")
	g.volumeIs("data", v1.HotplugVolumeDetaching, "DetachingVolume")
	g.sees("its disk", "head -n 1 "+device, "kept")

	do(t, ns, "removevolume", "refuses", "--volume-name=data", "--force")
	awaitVMI(t, ns, "refuses", "data gone from the status", func(vmi *v1.VirtualMachineInstance) bool {
		return volumeStatus(vmi, "data") == nil
	})
	awaitAttachmentPods(t, ns, "refuses", 0)
	g.sees("that writing fails", "dd if=/dev/zero of="+device+" bs=4096 count=1 conv=fsync 2>&1 | grep -o 'Input/output error'", "Input/output error")
	awaitEvent(t, ns, "VolumeForcedOut")

	do(t, ns, "addvolume", "refuses", "--volume-name=data", "--bus=virtio")
	g.volumeIs("data", v1.HotplugVolumeAttachedToNode, "GuestKeepsForcedDisk")
	do(t, ns, "reset", "refuses")
	g.volumeIs("data", v1.VolumeReady, "VolumeReady")
}

func (g *guest) volumeIs(volume string, phase v1.VolumePhase, reason string) {
	g.t.Helper()
	awaitVMI(g.t, g.namespace, g.name, fmt.Sprintf("%s %s (%s)", volume, phase, reason), func(vmi *v1.VirtualMachineInstance) bool {
		s := volumeStatus(vmi, volume)
		return s != nil && s.Phase == phase && s.Reason == reason
	})
}

func awaitEvent(t *testing.T, namespace, reason string) {
	t.Helper()
	eventually(t, "an event "+reason, func(ctx context.Context) error {
		var events corev1.EventList
		if err := cluster.client.List(ctx, &events, client.InNamespace(namespace)); err != nil {
			return err
		}
		var reasons []string
		for i := range events.Items {
			reasons = append(reasons, events.Items[i].Reason)
			if events.Items[i].Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("there are only %v", reasons)
	})
}

// media lists the claims that have a drive each.
var media = []string{"cd-files", "cd-device", "cd-locked"}

// mediaComeAndGo inserts claims of both modes into empty drives, and ejects them: one at once, one when the guest
// unlocks the tray, one by force.
func mediaComeAndGo(t *testing.T, g *guest) {
	t.Helper()
	ns := g.namespace
	claim(t, ns, "cd-files", corev1.PersistentVolumeFilesystem, folderWithImage(t, ns+"-files", "what-cd-files-holds\n"))
	claim(t, ns, "cd-locked", corev1.PersistentVolumeFilesystem, folderWithImage(t, ns+"-locked", "what-cd-locked-holds\n"))
	device := blockDevice(t)
	if err := os.WriteFile(device.Local.Path, []byte("what-cd-device-holds\n"), 0); err != nil {
		t.Fatal(err)
	}
	claim(t, ns, "cd-device", corev1.PersistentVolumeBlock, device)
	// Linux numbers drives in the order of their detection; on the bus they have the VMI's order.
	g.run("n=0; for d in /sys/bus/scsi/devices/*/block/sr*; do ln -s ${d##*/} /dev/cd$n; n=$((n+1)); done")
	for i, name := range media {
		do(t, ns, "addvolume", g.name, "--volume-name="+name)
		// Added at once, two might share an attachment pod, and an ejected one would stay in the status until the
		// other is released.
		g.volumeIs(name, v1.VolumeReady, "VolumeReady")
		g.sees("the medium "+name, fmt.Sprintf("head -n 1 /dev/cd%d", i), "what-"+name+"-holds")
	}
	// A process that has a drive open locks its tray.
	g.run("exec 3</dev/cd1 4</dev/cd2")
	for _, name := range media {
		do(t, ns, "removevolume", g.name, "--volume-name="+name)
	}
	gone := func(volume string) {
		t.Helper()
		awaitVMI(t, ns, g.name, volume+" gone from the status", func(vmi *v1.VirtualMachineInstance) bool {
			return volumeStatus(vmi, volume) == nil
		})
	}
	gone("cd-files")
	for i, name := range media[1:] {
		g.volumeIs(name, v1.HotplugVolumeDetaching, "DetachingVolume")
		g.sees("the medium "+name+" still", fmt.Sprintf("head -n 1 /dev/cd%d", i+1), "what-"+name+"-holds")
	}
	g.run("exec 3<&-")
	gone("cd-device")
	do(t, ns, "removevolume", g.name, "--volume-name=cd-locked", "--force")
	gone("cd-locked")
	awaitAttachmentPods(t, ns, g.name, 0)
	g.run("exec 4<&-")
	for i := range media {
		g.sees("no medium", fmt.Sprintf("head -n 1 /dev/cd%d 2>&1 | grep -o 'No medium'", i), "No medium")
	}
}
