package machine

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/contracts/launch"
)

func TestRefusalsNameTheField(t *testing.T) {
	for name, c := range map[string]struct{ domain, want string }{
		"no memory": {"memory: {guest: 0}",
			"spec.domain.memory.guest: the guest needs at least 1Mi of memory"},
		"a machine that is not q35": {"machine: {type: pc-i440fx-7.2}",
			`spec.domain.machine.type: QEMU has no q35 machine "pc-i440fx-7.2"`},
		"a machine with options": {`machine: {type: "pc-q35-7.2,smm=off"}`,
			`spec.domain.machine.type: QEMU has no q35 machine "pc-q35-7.2,smm=off"`},
		"a CPU model with options": {`cpu: {model: "max,-sse"}`,
			`spec.domain.cpu.model: "max,-sse" is not the name of a CPU model`},
		"a CPU feature with a value": {`cpu: {features: [{name: "aes=on"}]}`,
			`spec.domain.cpu.features[0]: "aes=on" is not the name of a CPU feature`},
		"an unknown feature policy": {`cpu: {features: [{name: aes, policy: maybe}]}`,
			`spec.domain.cpu.features[0]: policy "maybe" is none of force, require, optional, disable, forbid`},
		"Secure Boot without SMM": {"firmware: {bootloader: {efi: {}}}",
			"spec.domain.firmware.bootloader.efi.secureBoot: Secure Boot needs spec.domain.features.smm.enabled to be true"},
		"arguments without a kernel": {"firmware: {kernelBoot: {kernelArgs: quiet}}",
			"spec.domain.firmware.kernelBoot.container.kernelPath: a kernel is needed to boot from"},
		"an unknown time zone": {"clock: {timezone: Atlantis/Center}",
			`spec.domain.clock.timezone: "Atlantis/Center" is not a time zone`},
		"no RTC": {"clock: {timer: {rtc: {present: false}}}",
			"spec.domain.clock.timer.rtc.present: a q35 machine cannot be without its clock"},
		"an HPET policy": {"clock: {timer: {hpet: {tickPolicy: merge}}}",
			"spec.domain.clock.timer.hpet.tickPolicy: QEMU's HPET knows the policy delay only"},
		"a PIT policy": {"clock: {timer: {pit: {tickPolicy: catchup}}}",
			`spec.domain.clock.timer.pit.tickPolicy: "catchup" is none of delay, discard`},
		"a share with a name of options": {"devices: {filesystems: [{name: \"a,b\", virtiofs: {}}]}",
			`spec.domain.devices.filesystems[0].name: "a,b" must be of letters, digits, '-', '.' and '_'`},
		"an I/O thread policy": {"ioThreadsPolicy: many",
			`spec.domain.ioThreadsPolicy: "many" is none of shared, auto, supplementalPool`},
		"a thread for a SATA disk": {"devices: {disks: [{name: vol, disk: {}, dedicatedIOThread: true}]}",
			"spec.domain.devices.disks[0].dedicatedIOThread: only a disk on the bus virtio can have a thread of its own"},
		"a disk without a volume": {"devices: {disks: [{name: other, disk: {}}]}",
			`spec.domain.devices.disks[0].name: there is no volume "other"`},
		"a volume that is no disk": {"devices: {disks: [{name: strange, disk: {}}]}",
			`spec.domain.devices.disks[0].name: the volume "strange" is of a kind that a disk cannot be made of`},
		"a virtio CD-ROM": {"devices: {disks: [{name: vol, cdrom: {bus: virtio}}]}",
			"spec.domain.devices.disks[0]: only a disk can be on the bus virtio; a cdrom takes sata or scsi, a lun scsi"},
		"an unknown bus": {"devices: {disks: [{name: vol, disk: {bus: ide}}]}",
			`spec.domain.devices.disks[0]: the bus "ide" is none of virtio, sata, scsi, usb`},
		"a LUN that is a file": {"devices: {disks: [{name: vol, lun: {}}]}",
			`spec.domain.devices.disks[0].lun: volume "vol" is not a block device: a lun needs a claim with volumeMode Block`},
		"a serial for a LUN": {"devices: {disks: [{name: block, lun: {}, serial: mine}]}",
			"spec.domain.devices.disks[0].serial: a lun has the serial of its device"},
		"a SATA disk that is not to be written to": {"devices: {disks: [{name: vol, disk: {bus: sata, readonly: true}}]}",
			"spec.domain.devices.disks[0]: a disk on the bus sata can't be read-only: take the bus virtio, scsi or usb, or a cdrom"},
		"figures on SATA": {"devices: {disks: [{name: figures, disk: {}}]}",
			"spec.domain.devices.disks[0]: a disk on the bus sata can't be read-only: take the bus virtio, scsi or usb, or a cdrom"},
		"figures as a LUN": {"devices: {disks: [{name: figures, lun: {}}]}",
			`spec.domain.devices.disks[0].lun: volume "figures" is not a block device: a lun needs a claim with volumeMode Block`},
		"an open tray": {"devices: {disks: [{name: vol, cdrom: {tray: open}}]}",
			"spec.domain.devices.disks[0].cdrom.tray: a machine starts with its trays closed"},
		"a cache mode": {"devices: {disks: [{name: vol, disk: {}, cache: unsafe}]}",
			`spec.domain.devices.disks[0].cache: "unsafe" is none of none, writethrough, writeback`},
		"no direct I/O": {"devices: {disks: [{name: vol, disk: {}, cache: none}]}",
			`spec.domain.devices.disks[0].cache: the storage of volume "vol" has no direct I/O, which the mode none needs; use writethrough or writeback`},
		"native I/O through the page cache": {"devices: {disks: [{name: vol, disk: {}, cache: writeback, io: native}]}",
			"spec.domain.devices.disks[0].io: native needs the cache mode none"},
		"an I/O mode": {"devices: {disks: [{name: vol, disk: {}, io: io_uring}]}",
			`spec.domain.devices.disks[0].io: "io_uring" is none of native, threads, default`},
		"an error policy": {"devices: {disks: [{name: vol, disk: {}, errorPolicy: panic}]}",
			`spec.domain.devices.disks[0].errorPolicy: "panic" is none of stop, ignore, report, enospace`},
		"an interface model": {"devices: {interfaces: [{name: nic, model: vmxnet3}]}",
			`spec.domain.devices.interfaces[0].model: "vmxnet3" is none of virtio, e1000, e1000e, ne2k_pci, pcnet, rtl8139`},
		"an address on the root bus": {`devices: {interfaces: [{name: nic, pciAddress: "0000:00:05.0"}]}`,
			`spec.domain.devices.interfaces[0].pciAddress: "0000:00:05.0": give it as 0000:BB:00.0, where BB is a bus from 01 to 98`},
		"an address taken": {`devices: {interfaces: [{name: nic, pciAddress: "0000:05:00.0"}], disks: [{name: vol, disk: {bus: virtio, pciAddress: "0000:05:00.0"}}]}`,
			"spec.domain.devices.disks[0].disk.pciAddress: 0000:05:00.0 is taken by spec.domain.devices.interfaces[0].pciAddress"},
		"a video type": {"devices: {video: {type: voodoo}}",
			`spec.domain.devices.video.type: "voodoo" is none of vga, virtio, bochs, cirrus, ramfb`},
		"video without a screen": {"devices: {autoattachGraphicsDevice: false, video: {type: vga}}",
			"spec.domain.devices.video: autoattachGraphicsDevice is false: there is no screen"},
		"an s390x watchdog": {"devices: {watchdog: {name: dog, diag288: {}}}",
			"spec.domain.devices.watchdog.diag288: this watchdog exists on s390x only; use i6300esb"},
		"a watchdog action": {"devices: {watchdog: {name: dog, i6300esb: {action: bark}}}",
			`spec.domain.devices.watchdog.i6300esb.action: "bark" is none of reset, shutdown, poweroff`},
		"a sound card": {"devices: {sound: {name: a, model: sb16}}",
			`spec.domain.devices.sound.model: "sb16" is none of ich9, ac97`},
		"a panic device": {"devices: {panicDevices: [{model: siren}]}",
			`spec.domain.devices.panicDevices[0].model: "siren" is none of isa, hyperv, pvpanic`},
		"an input type": {"devices: {inputs: [{name: a, type: mouse}]}",
			`spec.domain.devices.inputs[0].type: "mouse" is none of tablet, keyboard`},
		"an input's name": {"devices: {inputs: [{name: my tablet, type: tablet}]}",
			`spec.domain.devices.inputs[0].name: "my tablet" must be of letters, digits, '-', '.' and '_'`},
		"an input bus": {"devices: {inputs: [{name: a, type: tablet, bus: ps2}]}",
			`spec.domain.devices.inputs[0].bus: "ps2" is none of usb, virtio`},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := parseDomain(t, c.domain)
			in := prepared(vmi)
			image := in.Images["vol"]
			image.DirectIO = strings.Contains(c.domain, "io:")
			in.Images["vol"] = image
			_, err := Build(in)
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestWhatHasNotBeenPreparedIsRefused(t *testing.T) {
	vmi := parseDomain(t, "devices: {disks: [{name: vol, disk: {}}], interfaces: [{name: nic}]}\nfirmware: {bootloader: {efi: {secureBoot: false}}}")
	_, err := Build(Input{VMI: vmi, Images: map[string]launch.PreparedImage{}})
	want := "spec.domain.firmware.bootloader.efi: the UEFI variables have not been prepared\n" +
		`spec.domain.devices.disks[0].name: the image of volume "vol" has not been prepared` + "\n" +
		`spec.domain.devices.interfaces[0].name: the network of interface "nic" has not been prepared`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestTooManyDevicesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		bus   string
		count int
		want  string
	}{
		"virtio": {"virtio", 80, "spec.domain.devices: the interfaces and virtio disks need 160 PCI ports, a machine has at most 152"},
		"usb":    {"usb", 9, "spec.domain.devices.disks[8]: a machine has at most 8 USB disks"},
		"sata":   {"sata", 55, "spec.domain.devices.disks[54]: a machine has at most 54 SATA disks"},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := parseDomain(t, "devices: {}")
			for range c.count {
				vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks,
					v1.Disk{Name: "vol", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBus(c.bus)}}})
			}
			if _, err := Build(prepared(vmi)); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// parseDomain is a VMI with the given domain and one volume, vol.
func parseDomain(t *testing.T, domain string) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{}
	if err := yaml.UnmarshalStrict([]byte(domain), &vmi.Spec.Domain); err != nil {
		t.Fatal(err)
	}
	if vmi.Spec.Domain.Memory == nil {
		vmi.Spec.Domain.Memory = readVMI(t, "testdata/smallest.yaml").Spec.Domain.Memory
	}
	vmi.Spec.Volumes = []v1.Volume{
		{Name: "vol", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "x"}}},
		{Name: "block", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "x"}}},
		{Name: "figures", VolumeSource: v1.VolumeSource{DownwardMetrics: &v1.DownwardMetricsVolumeSource{}}},
		{Name: "strange", VolumeSource: v1.VolumeSource{MemoryDump: &v1.MemoryDumpVolumeSource{}}},
	}
	return vmi
}
