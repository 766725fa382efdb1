package machine_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/test/guest"
)

const volDisk = `/dev/$(guestinfo disks | awk '$3=="vol"{print $1}')`

func bootFrom(t *testing.T, arguments, devices string) (*pod, *v1.VirtualMachineInstance) {
	t.Helper()
	files := buildGuest(t, guest.Lean)
	p := newPod(t)
	p.place(files.Kernel, "/var/run/kubevirt-kernel-boot/boot/vmlinuz")
	p.place(files.Initrd, "/var/run/kubevirt-kernel-boot/boot/initrd.img")
	text := fmt.Sprintf(kernelVMI, "", devices)
	vmi := parse(t, strings.Replace(text, "no_timer_check", "no_timer_check "+arguments, 1))
	p.boot(vmi)
	p.login()
	return p, vmi
}

// cleared waits until QEMU has nothing left of a volume, or only the remains of a forced unplug.
func (p *pod) cleared(name string, want diskhotplug.Stage) {
	p.t.Helper()
	err := error(nil)
	for tick := time.Tick(10 * time.Millisecond); p.disks()[name].Stage != want; <-tick {
		if p.ctx.Err() != nil {
			p.t.Fatalf("QEMU has %+v: %v", p.disks()[name], err)
		}
		if d := p.disks()[name]; d.Stage == diskhotplug.Partial {
			err = diskhotplug.Clear(p.ctx, p.monitor, d)
		}
	}
}

// A guest without a driver for PCI hotplug finds a new disk only after a rescan, and ignores unplug requests. Its
// earlier writes must be on the disk; later ones must fail, and must not stop it, although its error policy says
// so for failing storage.
func TestAGuestLosesADiskThatItDoesNotLetGoOf(t *testing.T) {
	t.Parallel()
	p, vmi := bootFrom(t, "acpiphp.disable=1", "")
	p.plugged(vmi, "vol", v1.DiskBusVirtio, 4<<20)
	p.prints("echo 1 >/sys/bus/pci/rescan; echo looked", "looked")
	p.awaits("vol", true)
	p.prints("echo kept | dd of="+volDisk+" conv=fsync 2>/dev/null; head -n 1 "+volDisk, "kept")
	for range 2 {
		if err := diskhotplug.Ask(p.ctx, p.monitor, p.disks()["vol"]); err != nil {
			t.Fatal(err)
		}
	}
	p.prints("head -n 1 "+volDisk, "kept")

	if err := diskhotplug.Force(p.ctx, p.monitor, p.disks()["vol"], machine.DetachedNode("vol")); err != nil {
		t.Fatal(err)
	}
	p.cleared("vol", diskhotplug.Detached)
	for _, command := range []string{
		"dd if=/dev/zero of=" + volDisk + " bs=4096 count=1 conv=fsync",
		"dd if=" + volDisk + " of=/dev/null bs=4096 skip=512 count=1",
	} {
		p.prints(command+" 2>&1 | grep -o 'Input/output error'", "Input/output error")
	}
	image, err := os.ReadFile(filepath.Join(p.dir, "vol"))
	if err != nil || !bytes.HasPrefix(image, []byte("kept\n")) {
		t.Errorf("the disk begins with %q (%v)", image[:8], err)
	}

	// A reset releases the disk.
	if err := p.monitor.Execute(p.ctx, "system_reset", nil, nil); err != nil {
		t.Fatal(err)
	}
	p.cleared("vol", diskhotplug.Absent)
}

// TestALockedTrayKeepsItsMedium ejects a medium while the guest has the drive open: the tray must stay locked, and only
// force may take the medium out.
func TestALockedTrayKeepsItsMedium(t *testing.T) {
	t.Parallel()
	p, vmi := bootFrom(t, "", ", disks: [{name: cd, cdrom: {bus: scsi}}]")
	for _, force := range []bool{false, true} {
		text := fmt.Sprint("medium-", force)
		p.inserted(vmi, "cd", text+"\n")
		p.prints("while [ ! -b /dev/sr0 ]; do sleep 0.05; done; head -n 1 /dev/sr0", text)
		p.prints("exec 3</dev/sr0; echo held", "held")
		if err := diskhotplug.Ask(p.ctx, p.monitor, p.disks()["cd"]); err != nil {
			t.Fatal(err)
		}
		if d := p.disks()["cd"]; d.Stage != diskhotplug.Plugged || !d.Locked || d.TrayOpen {
			t.Fatalf("with a locked tray, QEMU has %+v", d)
		}
		take := diskhotplug.Ask
		if force {
			take = func(ctx context.Context, m diskhotplug.Monitor, d diskhotplug.Disk) error {
				return diskhotplug.Force(ctx, m, d, machine.DetachedNode("cd"))
			}
		} else {
			p.prints("exec 3<&-; echo free", "free")
		}
		if err := take(p.ctx, p.monitor, p.disks()["cd"]); err != nil {
			t.Fatal(err)
		}
		p.cleared("cd", diskhotplug.Absent)
		p.prints("exec 3<&-; head -n 1 /dev/sr0 2>&1 | grep -o 'No medium'", "No medium")
		vmi.Spec.Volumes = nil
	}
}

func (p *pod) inserted(vmi *v1.VirtualMachineInstance, name, text string) {
	p.t.Helper()
	medium := make([]byte, 1<<20)
	copy(medium, text)
	if err := os.WriteFile(filepath.Join(p.dir, name), medium, 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.plugged(vmi, name, "", int64(len(medium)))
}
