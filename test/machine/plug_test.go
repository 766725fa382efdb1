package machine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/test/guest"
)

// plugged plugs a volume on a file of this size into the running machine; if a drive has its name, the volume is
// inserted there.
func (p *pod) plugged(vmi *v1.VirtualMachineInstance, name string, bus v1.DiskBus, size int64) {
	p.t.Helper()
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
		DataVolume: &v1.DataVolumeSource{Name: name, Hotpluggable: true},
	}})
	drive := machine.IsDrive(&vmi.Spec, name)
	if !drive {
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{
			Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: bus}},
		})
	}
	f := p.diskFile(name, size, drive)
	defer f.Close()
	var slot machine.Slot
	if !drive {
		slot = p.freeSlot(vmi, name)
	}
	tag := diskhotplug.Tag{
		Volume: name, Claim: name, Bus: string(slot.Bus), Number: slot.Number,
		Device: machine.DiskID(name), Drive: drive, Nodes: machine.PlugNodes(name),
	}
	err := diskhotplug.Plug(p.ctx, p.monitor, tag, f, func(path string) (diskhotplug.Parts, error) {
		image := launch.PreparedImage{Name: name, Source: path, SourceFormat: "raw", DirectIO: true, VirtualSize: size}
		made, err := machine.BuildPlug(machine.Input{VMI: vmi, Images: map[string]launch.PreparedImage{name: image}}, name, slot)
		parts := diskhotplug.Parts{Device: made.Device}
		for _, b := range made.Blockdevs {
			parts.Blockdevs = append(parts.Blockdevs, b)
		}
		return parts, err
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *pod) diskFile(name string, size int64, medium bool) *os.File {
	p.t.Helper()
	f, err := os.OpenFile(filepath.Join(p.dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil && medium {
		f.Close()
		f, err = os.Open(f.Name())
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

func (p *pod) freeSlot(vmi *v1.VirtualMachineInstance, name string) machine.Slot {
	p.t.Helper()
	var taken []machine.Slot
	for _, d := range p.disks() {
		taken = append(taken, machine.Slot{Bus: v1.DiskBus(d.Bus), Number: d.Number})
	}
	slot, err := machine.FreeSlot(&vmi.Spec, name, taken)
	if err != nil {
		p.t.Fatal(err)
	}
	return slot
}

func (p *pod) disks() map[string]diskhotplug.Disk {
	p.t.Helper()
	disks, err := diskhotplug.Observe(p.ctx, p.monitor)
	if err != nil {
		p.t.Fatal(err)
	}
	return disks
}

func (p *pod) unplugged(vmi *v1.VirtualMachineInstance, name string) {
	p.t.Helper()
	if err := diskhotplug.Ask(p.ctx, p.monitor, p.disks()[name]); err != nil {
		p.t.Fatal(err)
	}
	for tick := time.Tick(10 * time.Millisecond); p.disks()[name].Stage == diskhotplug.Plugged; <-tick {
		if p.ctx.Err() != nil {
			p.t.Fatalf("the guest does not let go of %s", name)
		}
	}
	// QEMU releases the node a moment after the device.
	for err, tick := error(nil), time.Tick(10*time.Millisecond); p.disks()[name].Stage != diskhotplug.Absent; <-tick {
		if p.ctx.Err() != nil {
			p.t.Fatalf("QEMU does not let go of %s: %v", name, err)
		}
		err = diskhotplug.Clear(p.ctx, p.monitor, p.disks()[name])
	}
	for i := range vmi.Spec.Volumes {
		if vmi.Spec.Volumes[i].Name == name {
			vmi.Spec.Volumes = append(vmi.Spec.Volumes[:i:i], vmi.Spec.Volumes[i+1:]...)
			break
		}
	}
	disks := &vmi.Spec.Domain.Devices.Disks
	for i := range *disks {
		if (*disks)[i].Name == name {
			*disks = append((*disks)[:i:i], (*disks)[i+1:]...)
			break
		}
	}
}

func (p *pod) awaits(serial string, there bool) {
	p.t.Helper()
	word := map[bool]string{true: "!", false: ""}[there]
	p.prints(fmt.Sprintf("while %s guestinfo disks | grep -q ' %s '; do sleep 0.05; done; echo so", word, serial), "so")
}

// TestDisksComeAndGoWhileTheGuestWrites plugs and unplugs disks on both buses while the guest writes and reads another
// one past all caches. PCI disks go when the guest's kernel agrees. QEMU must keep nothing of them.
func TestDisksComeAndGoWhileTheGuestWrites(t *testing.T) {
	t.Parallel()
	files := buildGuest(t, guest.Lean)
	p := newPod(t)
	p.place(files.Kernel, "/var/run/kubevirt-kernel-boot/boot/vmlinuz")
	p.place(files.Initrd, "/var/run/kubevirt-kernel-boot/boot/initrd.img")
	vmi := parse(t, fmt.Sprintf(kernelVMI, "", ""))
	p.boot(vmi)
	p.login()

	p.plugged(vmi, "vol-a", v1.DiskBusSCSI, 8<<20)
	p.awaits("vol-a", true)
	p.prints("disksoak /dev/$(guestinfo disks | awk '$3==\"vol-a\"{print $1}') >/tmp/soak 2>&1 & echo $! >/tmp/pid; echo begun", "begun")
	var took []time.Duration
	for round := range 6 {
		bus := []v1.DiskBus{v1.DiskBusVirtio, v1.DiskBusSCSI}[round%2]
		began := time.Now()
		p.plugged(vmi, "vol-b", bus, 4<<20)
		p.awaits("vol-b", true)
		took = append(took, time.Since(began))
		name := "$(guestinfo disks | awk '$3==\"vol-b\"{print $1}')"
		if round < 2 {
			p.prints("echo round | dd of=/dev/"+name+" conv=fsync 2>/dev/null; head -n 1 /dev/"+name, "round")
		} else {
			p.prints("head -n 1 /dev/"+name, "round")
		}
		p.unplugged(vmi, "vol-b")
		p.awaits("vol-b", false)
	}
	t.Logf("figure hotplug: device_add until the guest lists the disk: %v", took)

	if err := os.Truncate(filepath.Join(p.dir, "vol-a"), 16<<20); err != nil {
		t.Fatal(err)
	}
	if err := diskhotplug.Resize(p.ctx, p.monitor, machine.NodeName("vol-a"), 16<<20); err != nil {
		t.Fatal(err)
	}
	p.prints("while ! guestinfo disks | grep -q '16777216 vol-a'; do sleep 0.05; done; echo grown", "grown")

	p.prints("kill $(cat /tmp/pid); while kill -0 $(cat /tmp/pid) 2>/dev/null; do sleep 0.05; done; echo ended", "ended")
	out, _, err := p.console.Run(p.ctx, "cat /tmp/soak")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`writes=\d+ errors=0 `).MatchString(out) {
		t.Errorf("the guest says of the disk that it wrote to:\n%s", out)
	}
	t.Log("figure hotplug: ", strings.TrimSpace(out))
	p.unplugged(vmi, "vol-a")
	if left := p.disks(); len(left) > 0 {
		t.Errorf("QEMU still has %+v", left)
	}
}
