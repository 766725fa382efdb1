package machine

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

func TestWhatAMachineIsGivenForItsSpec(t *testing.T) {
	for name, test := range map[string]struct {
		domain   string
		kvm      bool
		has, not []string
	}{
		"shares": {domain: "memory: {guest: 64Mi, maxGuest: 128Mi}\ndevices: {filesystems: [{name: data, virtiofs: {}}, {name: more, virtiofs: {}}]}", kvm: true, has: []string{
			"-chardev socket,id=char-share-data,path=/var/run/kubevirt/share-data.sock\n", `"driver":"vhost-user-fs-pci","id":"share-data","multifunction":true`, `"tag":"data"`,
			`"addr":"0x1e.1"`, `"tag":"more"`, `"id":"ram0","qom-type":"memory-backend-memfd","share":true`, `"id":"ram1","qom-type":"memory-backend-memfd","reserve":false,"share":true`,
		}, not: []string{"memory-backend-ram"}},
		"shares and hugepages": {domain: "memory: {guest: 4Mi, hugepages: {pageSize: 2Mi}}\ndevices: {filesystems: [{name: data, virtiofs: {}}]}",
			has: []string{`"qom-type":"memory-backend-file","share":true`}},
		"a mebibyte of memory":        {domain: "memory: {guest: 1Mi}", kvm: true, has: []string{"-m size=1024k", `"size":1048576`}},
		"a byte more":                 {domain: `memory: {guest: "1048577"}`, kvm: true, has: []string{"-m size=2048k", `"size":2097152`}},
		"a mebibyte, emulated":        {domain: "memory: {guest: 1Mi}", has: []string{"-m size=1032k", `"size":1056768`}},
		"hugepages, emulated":         {domain: "memory: {guest: 4Mi, hugepages: {pageSize: 2Mi}}", has: []string{"-m size=4096k", `"size":4194304`}},
		"threads, emulated":           {domain: "cpu: {threads: 2}", has: []string{"-cpu max,vendor=GenuineIntel", "cpus=2,maxcpus=2,sockets=1,cores=1,threads=2"}},
		"threads, with KVM":           {domain: "cpu: {threads: 2}", kvm: true, has: []string{"-cpu host"}, not: []string{"vendor="}},
		"no threads, emulated":        {domain: "cpu: {cores: 2}", has: []string{"-cpu max\n"}},
		"one CPU, emulated":           {domain: "cpu: {cores: 1}", has: []string{"-accel tcg,thread=multi,"}},
		"two CPUs, emulated":          {domain: "cpu: {cores: 2}", has: []string{"-accel tcg,thread=single,"}},
		"room for two CPUs, emulated": {domain: "cpu: {sockets: 1, maxSockets: 2}", has: []string{"-accel tcg,thread=single,"}},
		"room for more sockets":       {domain: "cpu: {sockets: 2, cores: 3, threads: 2, maxSockets: 4}", has: []string{"cpus=12,maxcpus=24,sockets=4,cores=3,threads=2"}},
		"room for fewer than it has":  {domain: "cpu: {sockets: 2, maxSockets: 1}", has: []string{"cpus=2,maxcpus=2,sockets=2"}},
		"a feature that must be":      {domain: "cpu: {features: [{name: aes}]}", kvm: true, has: []string{"host,aes=on,enforce=on"}},
		"one that is required":        {domain: "cpu: {features: [{name: aes, policy: require}, {name: avx, policy: disable}]}", kvm: true, has: []string{"aes=on,avx=off,enforce=on"}},
		"one that may be":             {domain: "cpu: {features: [{name: aes, policy: optional}]}", kvm: true, has: []string{"aes=on"}, not: []string{"enforce"}},
		"one that must be, emulated":  {domain: "cpu: {features: [{name: aes}]}", has: []string{"aes=on"}, not: []string{"enforce"}},
		"a clock":                     {domain: "clock: {utc: {}}", has: []string{"-rtc base=utc"}},
		"a clock without an offset":   {domain: "clock: {utc: {offsetSeconds: 0}}", has: []string{"-rtc base=utc"}},
		"a clock that is ahead":       {domain: "clock: {utc: {offsetSeconds: 3600}}", has: []string{"-rtc base=2026-05-04T04:02:01"}},
		"a clock of a zone":           {domain: "clock: {timezone: Asia/Tokyo}", has: []string{"-rtc base=2026-05-04T12:02:01"}},
		"timers that are left alone":  {domain: "clock: {utc: {}, timer: {}}", has: []string{"-rtc base=utc\n"}, not: []string{"hpet", "pit="}},
		"an HPET":                     {domain: "clock: {timer: {hpet: {tickPolicy: delay}}}", has: []string{"hpet=on"}},
		"no HPET":                     {domain: "clock: {timer: {hpet: {present: false}}}", has: []string{"hpet=off"}},
		"a PIT that delays, with KVM": {domain: "clock: {timer: {pit: {tickPolicy: delay}}}", kvm: true, has: []string{"lost_tick_policy,value=delay"}, not: []string{"pit=off"}},
		"a PIT that delays, emulated": {domain: "clock: {timer: {pit: {tickPolicy: delay}}}", not: []string{"lost_tick_policy", "pit=off"}},
		"BIOS without words":          {domain: "firmware: {bootloader: {bios: {}}}", not: []string{"graphics=off"}},
		"BIOS on the serial port":     {domain: "firmware: {bootloader: {bios: {useSerial: true}}}", has: []string{"graphics=off"}},
		"a bootloader that is open":   {domain: "firmware: {bootloader: {}}", not: []string{"graphics=off", "pflash"}},
		"firmware that is open":       {domain: "firmware: {}", not: []string{"graphics=off", "pflash", "-uuid"}},
		"a serial of the machine":     {domain: "firmware: {serial: abc}", has: []string{"serial=abc"}},
		"a kernel that is open":       {domain: "firmware: {kernelBoot: {}}", not: []string{"-kernel", "-append", "-initrd"}},
		"a kernel alone": {domain: "firmware: {kernelBoot: {container: {image: x, kernelPath: /vmlinuz}}}",
			has: []string{"/vmlinuz"}, not: []string{"-append", "-initrd"}},
		"a kernel with all": {domain: "firmware: {kernelBoot: {kernelArgs: quiet, container: {image: x, kernelPath: /vmlinuz, initrdPath: /initrd}}}",
			has: []string{"/vmlinuz", "-append quiet", "-initrd", "/initrd"}},
		"UEFI without Secure Boot": {domain: "firmware: {bootloader: {efi: {secureBoot: false}}}", has: []string{"OVMF_CODE_4M.fd", `"driver":"bochs-display"`}, not: []string{"secure"}},
		"UEFI that takes keys":     {domain: "firmware: {bootloader: {efi: {secureBoot: false}}}\nfeatures: {smm: {}}", has: []string{"OVMF_CODE_4M.secboot.fd", "property=secure,value=on"}},
		"UEFI that takes keys, of a new type": {domain: "firmware: {bootloader: {efi: {secureBoot: false}}}\nfeatures: {smm: {}}\nmachine: {type: pc-q35-8.0}",
			has: []string{"OVMF_CODE_4M.secboot.fd", "property=secure,value=on"}},
		"UEFI that may come from QEMU 7.2": {domain: "firmware: {bootloader: {efi: {secureBoot: false}}}\nfeatures: {smm: {}}\nmachine: {type: pc-q35-7.2}",
			has: []string{"OVMF_CODE_4M.fd"}, not: []string{"secure"}},
		"UEFI with Secure Boot of QEMU 7.2": {domain: "firmware: {bootloader: {efi: {}}}\nfeatures: {smm: {}}\nmachine: {type: pc-q35-7.2}", has: []string{"OVMF_CODE_4M.secboot.fd", "property=secure,value=on"}},
		"UEFI with Secure Boot":             {domain: "firmware: {bootloader: {efi: {}}}\nfeatures: {acpi: {}, smm: {}}", has: []string{"OVMF_CODE_4M.secboot.fd", "property=secure,value=on", "smm=on"}},
		"no ACPI":                           {domain: "features: {acpi: {enabled: false}}", has: []string{"acpi=off"}},
		"ACPI":                              {domain: "features: {acpi: {}}", not: []string{"acpi=off"}},
		"no APIC":                           {domain: "features: {acpi: {}, apic: {enabled: false}}", has: []string{"apic=off"}},
		"an APIC":                           {domain: "features: {acpi: {}, apic: {}}", not: []string{"apic=off", "eoi"}},
		"features of which nothing is said, with KVM": {domain: "features: {acpi: {}, hyperv: {}}", kvm: true, has: []string{"-cpu host\n"}},
		"features that are left alone, with KVM": {domain: "features: {acpi: {}, kvm: {}, apic: {}, hyperv: {spinlocks: {enabled: false}, vendorid: {enabled: false, vendorid: me}}}", kvm: true,
			has: []string{"-cpu host\n"}},
		"features that are asked for, with KVM": {domain: "features: {acpi: {}, kvm: {hidden: true}, apic: {endOfInterrupt: true}, hyperv: {spinlocks: {}, vendorid: {vendorid: me}}}", kvm: true,
			has: []string{"host,kvm=off,kvm-pv-eoi=on,hv-spinlocks=0x1000,hv-vendor-id=me\n"}},
		"parts of features that are off, with KVM": {domain: "features: {acpi: {}, hyperv: {synictimer: {enabled: false, direct: {}}, tlbflush: {enabled: false, direct: {}, extended: {}}}}", kvm: true,
			has: []string{"host,hv-stimer=off,hv-tlbflush=off\n"}},
		"parts of features that are on, with KVM": {domain: "features: {acpi: {}, hyperv: {synictimer: {direct: {}}, tlbflush: {direct: {}, extended: {}}}}", kvm: true,
			has: []string{"host,hv-stimer=on,hv-stimer-direct=on,hv-tlbflush=on,hv-tlbflush-direct=on,hv-tlbflush-ext=on\n"}},
		"an RTC of the guest's time that catches up": {domain: "clock: {timer: {rtc: {track: guest, tickPolicy: catchup}}}", has: []string{"-rtc base=utc,clock=vm,driftfix=slew\n"}},
		"an RTC of the host's time that delays":      {domain: "clock: {timer: {rtc: {track: wall, tickPolicy: delay}}}", has: []string{"-rtc base=utc,clock=host,driftfix=none\n"}},
		"no screen":                                  {domain: "devices: {autoattachGraphicsDevice: false}", not: []string{"-vnc", "video0"}},
		"a screen that is named":                     {domain: "devices: {video: {type: ramfb}}", has: []string{`"driver":"ramfb","id":"video0"`}},
		"a screen that is not":                       {domain: "devices: {video: {}}", has: []string{`"driver":"VGA"`}},
		"no balloon, no console":                     {domain: "devices: {autoattachMemBalloon: false, autoattachSerialConsole: false}", not: []string{"balloon", "isa-serial"}},
		"a watchdog":                                 {domain: "devices: {watchdog: {name: dog}}", has: []string{"i6300esb", "watchdog=reset"}},
		"a watchdog that says what to do":            {domain: "devices: {watchdog: {name: dog, i6300esb: {action: poweroff}}}", has: []string{"watchdog=poweroff"}},
		"a watchdog that leaves it open":             {domain: "devices: {watchdog: {name: dog, i6300esb: {}}}", has: []string{"watchdog=reset"}},
		"no watchdog":                                {domain: "devices: {}", not: []string{"watchdog"}},
		"a sound card":                               {domain: "devices: {sound: {name: a}}", has: []string{"-audiodev driver=none,id=audio0\n", `"addr":"0x1f.5","bus":"pcie.0","driver":"ich9-intel-hda"`, "hda-duplex", "share=force-shared,audiodev=audio0"}},
		"an older sound card without a screen":       {domain: "devices: {autoattachGraphicsDevice: false, sound: {name: a, model: ac97}}", has: []string{`"addr":"0x1f.5","audiodev":"audio0","bus":"pcie.0","driver":"AC97"`}, not: []string{"hda", "-vnc"}},
		"no sound card":                              {domain: "devices: {}", not: []string{"audio"}},
		"two panic devices":                          {domain: "devices: {panicDevices: [{}, {model: pvpanic}]}", has: []string{`"driver":"pvpanic","id":"panic0"`, `"driver":"pvpanic-pci","id":"panic1"`}},
		"a panic device of the hypervisor":           {domain: "devices: {panicDevices: [{model: hyperv}]}", kvm: true, has: []string{"hv-crash=on"}, not: []string{"pvpanic"}},
		"an input by itself":                         {domain: "devices: {autoattachInputDevice: true}", has: []string{`"id":"input-default-0"`, "usb-tablet"}},
		"an input instead":                           {domain: "devices: {autoattachInputDevice: true, inputs: [{name: a, type: keyboard, bus: virtio}]}", has: []string{"virtio-keyboard-pci"}, not: []string{"default-0", "qemu-xhci"}},
		"no input":                                   {domain: "devices: {autoattachInputDevice: false}", not: []string{"input-", "qemu-xhci"}},
		"inputs on both buses": {domain: "devices: {inputs: [{name: a, type: tablet, bus: virtio}, {name: b, type: keyboard, bus: virtio}, {name: c, type: keyboard}, {name: d, type: tablet, bus: usb}]}",
			has: []string{`"addr":"0x9.0","bus":"pcie.0","disable-legacy":"on","driver":"virtio-tablet-pci"`, `"addr":"0x9.1","bus":"pcie.0","disable-legacy":"on","driver":"virtio-keyboard-pci"`, `"id":"input-c","port":"1"`, `"id":"input-d","port":"2"`}},
		"nothing to plug":         {domain: "devices: {disableHotplug: true}", not: []string{"virtio-scsi"}},
		"nothing to plug, a disk": {domain: "devices: {disableHotplug: true, disks: [{name: vol, disk: {bus: scsi}}]}", has: []string{"virtio-scsi-pci"}},
		"disks of one queue each": {domain: "cpu: {cores: 4}\ndevices: {disks: [{name: vol, disk: {bus: virtio}}]}", has: []string{`"num-queues":1`, `"num_queues":1`}},
		"disks of many queues": {domain: "cpu: {cores: 4}\ndevices: {blockMultiQueue: true, disks: [{name: vol, disk: {bus: virtio}}]}",
			has: []string{`"num-queues":4`, `"num_queues":4`}},
		"an interface that is gone, and one": {domain: "devices: {interfaces: [{name: a, state: absent}, {name: b}]}", has: []string{`"id":"net-b"`, `"host_mtu":1450`}, not: []string{`"id":"net-a"`, `"mq"`, "acpi-index"}},
		"an interface of many queues":        {domain: "cpu: {cores: 4}\ndevices: {networkInterfaceMultiqueue: true, interfaces: [{name: b}]}", has: []string{`"mq":true`, `"queues":4`, `"vectors":10`}},
		"an interface with a place": {domain: "devices: {interfaces: [{name: b, acpiIndex: 3, bootOrder: 1}], disks: [{name: vol, disk: {}}]}",
			has: []string{`"acpi-index":3`, `"bootindex":1`}, not: []string{"romfile", `"bootindex":2`}},
		"disks in the order of the spec":  {domain: "devices: {disks: [{name: vol, disk: {}}, {name: block, disk: {}}]}", has: []string{`"bootindex":1`, `"bootindex":2`}, not: []string{`"bootindex":0`, `"bootindex":3`}},
		"the second disk has a place":     {domain: "devices: {disks: [{name: vol, disk: {}}, {name: block, disk: {}, bootOrder: 7}]}", has: []string{`"bootindex":7`}, not: []string{`"bootindex":1`, `"bootindex":2`}},
		"a serial as long as can be":      {domain: "devices: {disks: [{name: vol, disk: {bus: virtio}, serial: abcdefghijklmnopqrst}]}", has: []string{`"serial":"abcdefghijklmnopqrst"`}},
		"a disk that two guests share":    {domain: "devices: {disks: [{name: vol, disk: {bus: virtio}, shareable: true}]}", has: []string{`"share-rw":true`}},
		"a disk of one guest":             {domain: "devices: {disks: [{name: vol, disk: {bus: virtio}}]}", not: []string{"share-rw", `"serial":`, "block_size"}},
		"a disk with blocks of its own":   {domain: "devices: {disks: [{name: vol, disk: {bus: virtio}, blockSize: {custom: {logical: 512, physical: 4096, discardGranularity: 8192}}}]}", has: []string{`"logical_block_size":512`, `"physical_block_size":4096`, `"discard_granularity":8192`}},
		"a disk with one size of blocks":  {domain: "devices: {disks: [{name: vol, disk: {bus: virtio}, blockSize: {custom: {logical: 4096}}}]}", has: []string{`"logical_block_size":4096`}, not: []string{"physical_block_size", "discard_granularity"}},
		"a disk with its volume's blocks": {domain: "devices: {disks: [{name: vol, disk: {bus: virtio}, blockSize: {matchVolume: {}}}]}", has: []string{`"logical_block_size":512`, `"physical_block_size":4096`}},
		"a disk with no volume's blocks":  {domain: "devices: {disks: [{name: vol, disk: {bus: virtio}, blockSize: {matchVolume: {enabled: false}}}]}", not: []string{"block_size"}},
		"a lun":                           {domain: "devices: {disks: [{name: block, lun: {}}]}", has: []string{`"driver":"scsi-block"`, `"lun":0`}, not: []string{"device_id", "write-cache", "share-rw"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := prepared(parseDomain(t, test.domain))
			in.KVM = test.kvm
			checkArgs(t, in, test.has, test.not)
		})
	}
}

// checkArgs checks that a machine has some arguments, and lacks others.
func checkArgs(t *testing.T, in Input, has, not []string) {
	t.Helper()
	m, err := Build(in)
	if err != nil {
		t.Fatalf("building the machine: %v", err)
	}
	text := render(m.Args())
	for _, part := range has {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
	for _, part := range not {
		if strings.Contains(text, part) {
			t.Errorf("%q is in\n%s", part, text)
		}
	}
}

func TestTheSerialConsoleIsCopiedToItsLog(t *testing.T) {
	for logged, part := range map[bool]string{true: ",server=on,wait=off,logfile=/proc/self/fd/4", false: ""} {
		in := prepared(parseDomain(t, "devices: {}"))
		in.LogConsole = logged
		checkArgs(t, in, []string{"id=char-serial0", part}, map[bool][]string{false: {"logfile"}}[logged])
		in = prepared(parseDomain(t, "devices: {autoattachSerialConsole: false}"))
		in.LogConsole = logged
		checkArgs(t, in, nil, []string{"logfile", "serial0"})
	}
}

// TestAGuestArrivesWithTheCPUsThatItHas migrates a guest before it has all requested CPUs, or before it has released
// the unwanted ones.
func TestAGuestArrivesWithTheCPUsThatItHas(t *testing.T) {
	for sockets, want := range map[uint32]string{
		0: "cpus=4,maxcpus=8,sockets=4,cores=2,threads=1", 1: "cpus=2,maxcpus=8,sockets=4,cores=2,threads=1",
		3: "cpus=6,maxcpus=8,sockets=4,cores=2,threads=1", 4: "cpus=8,maxcpus=8,sockets=4,cores=2,threads=1",
		5: "cpus=8,maxcpus=8,sockets=4,cores=2,threads=1",
	} {
		in := prepared(parseDomain(t, "cpu: {sockets: 2, cores: 2, maxSockets: 4}"))
		in.Sockets = sockets
		m, err := Build(in)
		if err != nil {
			t.Fatal(err)
		}
		if text := render(m.Args()); !strings.Contains(text, want) {
			t.Errorf("with %d sockets: %q is not in\n%s", sockets, want, text)
		}
	}
}

func TestTopologyOfAGuest(t *testing.T) {
	cpus := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
	}
	for name, test := range map[string]struct {
		cpu              *v1.CPU
		limits, requests corev1.ResourceList
		want             string
	}{
		"nothing is said":               {nil, nil, nil, "1 1 1"},
		"nothing is said of a topology": {&v1.CPU{Model: "host-model"}, nil, nil, "1 1 1"},
		"sockets":                       {&v1.CPU{Sockets: 2}, cpus("8"), nil, "2 1 1"},
		"cores":                         {&v1.CPU{Cores: 2}, cpus("8"), nil, "1 2 1"},
		"threads":                       {&v1.CPU{Threads: 2}, cpus("8"), nil, "1 1 2"},
		"a limit":                       {&v1.CPU{}, cpus("8"), cpus("2"), "8 1 1"},
		"a request, rounded up":         {nil, nil, cpus("2500m"), "3 1 1"},
		"a limit of nothing":            {nil, cpus("0"), cpus("2"), "2 1 1"},
		"a limit of something else":     {nil, corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}, cpus("2"), "2 1 1"},
	} {
		spec := &v1.VirtualMachineInstanceSpec{}
		spec.Domain.CPU, spec.Domain.Resources.Limits, spec.Domain.Resources.Requests = test.cpu, test.limits, test.requests
		top := Topology(spec)
		if got := fmt.Sprint(top.Sockets, " ", top.Cores, " ", top.Threads); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestMemoryOfAGuest(t *testing.T) {
	list := func(text string) corev1.ResourceList {
		if text == "" {
			return nil
		}
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(text)}
	}
	for name, test := range map[string]struct {
		memory           *v1.Memory
		requests, limits string
		want             int64
	}{
		"nothing is said":                {nil, "", "", 0},
		"nothing is said of its size":    {&v1.Memory{}, "", "2Gi", 2 << 30},
		"its size":                       {&v1.Memory{Guest: new(resource.MustParse("1Gi"))}, "3Gi", "2Gi", 1 << 30},
		"a request, which goes first":    {nil, "1Gi", "2Gi", 1 << 30},
		"a limit is better than nothing": {nil, "", "2Gi", 2 << 30},
	} {
		spec := &v1.VirtualMachineInstanceSpec{}
		spec.Domain.Memory, spec.Domain.Resources.Requests, spec.Domain.Resources.Limits = test.memory, list(test.requests), list(test.limits)
		if got := GuestMemory(spec); got != test.want {
			t.Errorf("%s: %d bytes, want %d", name, got, test.want)
		}
	}
}

func TestMemoryThatAGuestWasStartedWith(t *testing.T) {
	asked := resource.MustParse("3Gi")
	for name, test := range map[string]struct {
		status *v1.MemoryStatus
		want   int64
	}{
		"nothing is said":             {nil, 3 << 30},
		"only what it has is said":    {&v1.MemoryStatus{GuestCurrent: resource.NewQuantity(2<<30, resource.BinarySI)}, 3 << 30},
		"it was started with less":    {&v1.MemoryStatus{GuestAtBoot: resource.NewQuantity(1<<30, resource.BinarySI)}, 1 << 30},
		"it was started with as much": {&v1.MemoryStatus{GuestAtBoot: &asked}, 3 << 30},
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.Domain.Memory, vmi.Status.Memory = &v1.Memory{Guest: &asked}, test.status
		if got := BootMemory(vmi); got != test.want {
			t.Errorf("%s: %d bytes, want %d", name, got, test.want)
		}
	}
}

// The chipset has six SATA ports; each further controller has six more.
func TestControllersForManySATADisks(t *testing.T) {
	for disks, want := range map[int]int{0: 0, 6: 0, 7: 1, 12: 1, 13: 2, 54: 8} {
		vmi := parseDomain(t, "devices: {}")
		for i := range disks {
			name := fmt.Sprintf("disk%d", i)
			vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{Name: name, DiskDevice: onBus("")})
			vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: empty})
		}
		m, err := Build(prepared(vmi))
		if err != nil {
			t.Errorf("%d disks: %v", disks, err)
			continue
		}
		var controllers []string
		for _, d := range m.Devices {
			if d["driver"] == "ich9-ahci" {
				controllers = append(controllers, fmt.Sprint(d["id"], "@", d["addr"], "=", d["multifunction"]))
			}
		}
		var expected []string
		for i := range want {
			expected = append(expected, fmt.Sprintf("sata%d@0xb.%d=%v", i+1, i, i == 0))
		}
		if fmt.Sprint(controllers) != fmt.Sprint(expected) {
			t.Errorf("%d disks: the controllers are %v, want %v", disks, controllers, expected)
		}
	}
}

func TestHowManyInputsAMachineHas(t *testing.T) {
	for inputs, want := range map[int]string{7: "", 8: "spec.domain.devices.inputs: a machine has at most 7 inputs"} {
		vmi := parseDomain(t, "devices: {}")
		for i := range inputs {
			vmi.Spec.Domain.Devices.Inputs = append(vmi.Spec.Domain.Devices.Inputs, v1.Input{Name: fmt.Sprint(i), Type: v1.InputTypeTablet})
		}
		got := ""
		if _, err := Build(prepared(vmi)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%d inputs: %q, want %q", inputs, got, want)
		}
	}
}

// The refusal of a spec with several errors must name all of them.
func TestEveryMistakeIsNamed(t *testing.T) {
	for name, test := range map[string]struct{ domain, want string }{
		"features": {`cpu: {features: [{name: "a=b"}, {name: aes}, {name: x, policy: maybe}]}`,
			`spec.domain.cpu.features[0]: "a=b" is not the name of a CPU feature` + "\n" +
				`spec.domain.cpu.features[2]: policy "maybe" is none of force, require, optional, disable, forbid`},
		"inputs": {"devices: {inputs: [{name: a, type: mouse}, {name: b, type: tablet, bus: ps2}, {name: c, type: pen}]}",
			`spec.domain.devices.inputs[0].type: "mouse" is none of tablet, keyboard` + "\n" +
				`spec.domain.devices.inputs[1].bus: "ps2" is none of usb, virtio` + "\n" +
				`spec.domain.devices.inputs[2].type: "pen" is none of tablet, keyboard`},
		"addresses": {`devices: {interfaces: [{name: a, pciAddress: "x"}, {name: b}, {name: c, pciAddress: "y"}]}`,
			`spec.domain.devices.interfaces[0].pciAddress: "x": give it as 0000:BB:00.0, where BB is a bus from 01 to 98` + "\n" +
				`spec.domain.devices.interfaces[2].pciAddress: "y": give it as 0000:BB:00.0, where BB is a bus from 01 to 98`},
		"a kernel": {"firmware: {kernelBoot: {container: {image: x}}}",
			"spec.domain.firmware.kernelBoot.container.kernelPath: a kernel is needed to boot from"},
		"Secure Boot with SMM switched off": {"firmware: {bootloader: {efi: {}}}\nfeatures: {acpi: {}, smm: {enabled: false}}",
			"spec.domain.firmware.bootloader.efi.secureBoot: Secure Boot needs spec.domain.features.smm.enabled to be true"},
		"Secure Boot with other features": {"firmware: {bootloader: {efi: {}}}\nfeatures: {acpi: {}}",
			"spec.domain.firmware.bootloader.efi.secureBoot: Secure Boot needs spec.domain.features.smm.enabled to be true"},
	} {
		_, err := Build(prepared(parseDomain(t, test.domain)))
		if err == nil || err.Error() != test.want {
			t.Errorf("%s: got\n%v\nwant\n%s", name, err, test.want)
		}
	}
}

// TestDebugLogs: QEMU must log its run states only where the VMI's label asks for it.
func TestDebugLogs(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false, "": false} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("64Mi"))}
		vmi.Labels = map[string]string{DebugLogsLabel: value}
		m, err := Build(Input{VMI: vmi})
		if err != nil {
			t.Fatal(err)
		}
		args := strings.Join(m.Args(), " ")
		if got := strings.Contains(args, "-msg timestamp=on -trace vm_state_notify -trace migrate_set_state"); got != want || want != strings.Contains(args, "-trace") {
			t.Errorf("with %q: %s", value, args)
		}
	}
}
