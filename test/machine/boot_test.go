package machine_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/test/guest"
)

const uuid = "5d307ca9-b3ef-428c-8861-06e72d69f223"

const diskVMI = `
metadata: {name: disks, namespace: default}
spec:
  domain:
    firmware: {uuid: %s, serial: SN-7%s}
    chassis: {asset: tag-9}
    cpu: {sockets: 2, cores: 1, threads: 1}
    memory: {guest: 256Mi}
    devices:
      rng: {}
      tpm: {}
      disks:
      - {name: root, disk: {bus: virtio}}
      - {name: data, disk: {bus: virtio}, serial: the-data}
      - {name: scratch, disk: {bus: scsi}, serial: the-scratch}
      - {name: seal, disk: {bus: scsi, readonly: true}}
      - {name: tray, cdrom: {bus: scsi}}
      interfaces:
      - {name: default, masquerade: {}}
      - {name: second, bridge: {}, macAddress: 02-00-00-00-00-07}
  volumes:
  - {name: root, containerDisk: {image: test-guest}}
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: scratch, emptyDisk: {capacity: 3Mi}}
  - {name: seal, persistentVolumeClaim: {claimName: seal}}
`

// Commands of a TPM 2.0, and the response of success without data.
const (
	tpmSelfTest = "8001 0000000b 00000143 01"
	tpmSuccess  = "80010000000a00000000"
)

func TestTheGuestSeesWhatTheSpecSays(t *testing.T) {
	t.Parallel()
	files := buildGuest(t, guest.Lean)
	for firmware, bootloader := range map[string]string{
		"bios": "",
		"efi":  ", bootloader: {efi: {secureBoot: false}}",
	} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			vmi := parse(t, fmt.Sprintf(diskVMI, uuid, bootloader))
			p.place(files.Disk, filepath.Join(layout.VolumeDir("root"), layout.ContainerDiskDir, "guest.qcow2"))
			p.blank(filepath.Join(layout.VolumeDir("data"), layout.DiskImage), 5<<20)
			p.blank(filepath.Join(layout.VolumeDir("seal"), layout.DiskImage), 1<<20)
			p.boot(vmi)
			p.login()
			p.prints("guestinfo uuid", uuid)
			p.prints("guestinfo serial", "SN-7")
			p.prints("guestinfo firmware", firmware)
			p.prints("guestinfo cpus", "2 sockets=2 cores=1 threads=1")
			p.prints("cat /sys/class/dmi/id/chassis_asset_tag /sys/class/dmi/id/product_family", "tag-9\nKubeVirt")
			p.prints("ls -d /sys/block/sr0", "/sys/block/sr0")
			// The kernel probes SCSI disks in parallel, so their letters are random.
			p.prints("guestinfo disks | cut -d' ' -f1-6 | grep -v sr0 | sed 's/^sd./sd?/' | sort", strings.Join([]string{
				"sd? 1048576 - scsi ro disk",
				"sd? 3145728 the-scratch scsi rw disk",
				"vda 67108864 - virtio rw disk",
				"vdb 5242880 the-data virtio rw disk",
			}, "\n"))
			p.prints("guestinfo nics | cut -d' ' -f1-2", "eth0 "+machine.MAC(vmi, "default")+"\neth1 02:00:00:00:00:07")
			// internal/rules/machine promises these addresses: port n is bus n+1.
			for device, address := range map[string]string{
				"/sys/class/net/eth0/device": "0000:01:00.0",
				"/sys/block/vda/device":      "0000:02:00.0",
				"/sys/class/net/eth1/device": "0000:03:00.0",
				"/sys/block/vdb/device":      "0000:04:00.0",
			} {
				p.prints("basename $(dirname $(readlink -f "+device+"))", address)
			}
			p.prints("cat /sys/class/tpm/tpm0/tpm_version_major", "2")
			p.prints("tpmsend "+tpmSelfTest, tpmSuccess)
			p.prints("echo kept > /dev/vdb; sync; head -c 5 /dev/vdb", "kept")
			p.powersOff()
		})
	}
}

const kernelVMI = `
metadata: {name: kernel, namespace: default}
spec:
  domain:
    firmware:
      uuid: ` + uuid + `
      kernelBoot:
        kernelArgs: console=ttyS0 quiet no_timer_check cryptomgr.notests
        container: {image: test-guest-kernel, kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd.img}
    memory: {guest: 160Mi}%s
    devices: {autoattachGraphicsDevice: false%s}
`

func bootKernel(t *testing.T, flavor guest.Flavor, domain, devices string) *pod {
	t.Helper()
	files := buildGuest(t, flavor)
	p := newPod(t)
	p.place(files.Kernel, layout.KernelBootDir+"/boot/vmlinuz")
	p.place(files.Initrd, layout.KernelBootDir+"/boot/initrd.img")
	p.boot(parse(t, fmt.Sprintf(kernelVMI, domain, devices)))
	p.login()
	return p
}

func TestSIGTERMPressesThePowerButtonAndTheGuestFollows(t *testing.T) {
	t.Parallel()
	p := bootKernel(t, guest.Lean, "\n    cpu: {cores: 2, threads: 2}", "")
	p.prints("guestinfo cpus", "4 sockets=1 cores=2 threads=2")
	if err := p.program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.exits(launch.ReasonHostShutdown)
}

func TestAGuestThatIsStillBootingIsAskedAgain(t *testing.T) {
	t.Parallel()
	files := buildGuest(t, guest.Lean)
	p := newPod(t)
	p.place(files.Kernel, layout.KernelBootDir+"/boot/vmlinuz")
	p.place(files.Initrd, layout.KernelBootDir+"/boot/initrd.img")
	p.boot(parse(t, fmt.Sprintf(kernelVMI, "", "")))
	if err := p.program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.exits(launch.ReasonHostShutdown)
}

func TestAPanicIsSeen(t *testing.T) {
	t.Parallel()
	for name, devices := range map[string]string{
		"by default":     "",
		"by the PCI one": ", panicDevices: [{model: pvpanic}]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := bootKernel(t, guest.Lean, "", devices)
			p.send("panic")
			p.exits(launch.ReasonGuestPanicked)
		})
	}
}

func TestARebootIsTheGuestsOwnAffair(t *testing.T) {
	t.Parallel()
	p := bootKernel(t, guest.Lean, "", "")
	p.prints("touch /tmp/was-here; ls /tmp/was-here", "/tmp/was-here")
	p.send("reboot")
	if _, err := p.console.Expect(p.ctx, regexp.MustCompile(`drydock guest ready: \S+ uuid=`+uuid)); err != nil {
		t.Fatal(err)
	}
	p.login()
	p.prints("ls /tmp/was-here 2>/dev/null || echo gone", "gone")
}

func TestARebootEndsAMachineThatIsToTerminate(t *testing.T) {
	t.Parallel()
	p := bootKernel(t, guest.Lean, "\n    rebootPolicy: Terminate", "")
	p.send("reboot")
	p.exits(launch.ReasonGuestShutdown)
}

func TestPausedAtStart(t *testing.T) {
	t.Parallel()
	files := buildGuest(t, guest.Lean)
	p := newPod(t)
	p.place(files.Kernel, layout.KernelBootDir+"/boot/vmlinuz")
	p.place(files.Initrd, layout.KernelBootDir+"/boot/initrd.img")
	vmi := parse(t, strings.Replace(fmt.Sprintf(kernelVMI, "", ""), "spec:", "spec:\n  startStrategy: Paused", 1))
	p.boot(vmi)
	var status struct{ Status string }
	if err := p.monitor.Execute(p.ctx, "query-status", nil, &status); err != nil || status.Status != "prelaunch" {
		t.Fatalf("the guest is %q, %v", status.Status, err)
	}
	if err := p.monitor.Execute(p.ctx, "cont", nil, nil); err != nil {
		t.Fatal(err)
	}
	p.login()
}

func TestTheWatchdogEndsAGuestThatHangs(t *testing.T) {
	t.Parallel()
	p := bootKernel(t, guest.Full, "", ", watchdog: {name: dog, i6300esb: {action: poweroff}}")
	p.prints("ls /dev/watchdog0", "/dev/watchdog0")
	// Nobody feeds the watchdog after this.
	p.send("echo 1 > /dev/watchdog0; watchdog -T 2 -t 60 /dev/watchdog0; killall -9 watchdog")
	p.exits(launch.ReasonWatchdog)
}

func TestOldGuestsFindTheirDevices(t *testing.T) {
	t.Parallel()
	files := buildGuest(t, guest.Full)
	p := newPod(t)
	p.place(files.Kernel, layout.KernelBootDir+"/boot/vmlinuz")
	p.place(files.Initrd, layout.KernelBootDir+"/boot/initrd.img")
	p.blank(filepath.Join(layout.VolumeDir("stick"), layout.DiskImage), 2<<20)
	p.blank(filepath.Join(layout.VolumeDir("sata"), layout.DiskImage), 4<<20)
	p.blank(filepath.Join(layout.VolumeDir("cd"), layout.DiskImage), 1<<20)
	vmi := parse(t, fmt.Sprintf(kernelVMI, "", `
      , sound: {name: card}
      , inputs: [{name: tablet, type: tablet, bus: usb}, {name: keys, type: keyboard, bus: virtio}]
      , interfaces: [{name: a, masquerade: {}, model: e1000}, {name: b, bridge: {}, model: e1000e}, {name: c, bridge: {}, model: rtl8139}]
      , disks: [{name: sata, disk: {}, serial: of-sata}, {name: stick, disk: {bus: usb}, serial: of-usb}, {name: cd, cdrom: {}}]`)+`
  volumes:
  - {name: sata, persistentVolumeClaim: {claimName: a}}
  - {name: stick, persistentVolumeClaim: {claimName: b}}
  - {name: cd, persistentVolumeClaim: {claimName: c}}
`)
	p.boot(vmi)
	p.login()
	p.prints("guestinfo disks | cut -d' ' -f2,3 | sort", "1048576 -\n2097152 -\n4194304 of-sata")
	p.prints("cat /sys/bus/usb/devices/*/serial | grep -c of-usb", "1")
	p.prints("guestinfo nics | cut -d' ' -f2 | sort", strings.Join([]string{
		machine.MAC(vmi, "a"), machine.MAC(vmi, "b"), machine.MAC(vmi, "c"),
	}, "\n"))
	p.prints("grep -h -o 'QEMU Virtio Keyboard' /proc/bus/input/devices", "QEMU Virtio Keyboard")
	p.prints("cat /sys/bus/usb/devices/*/product | grep -o 'QEMU USB Tablet'", "QEMU USB Tablet")
	p.prints("grep -h playback /proc/asound/card0/pcm0p/info /proc/asound/pcm | grep -o 'playback 1'", "playback 1")
}
