package machine

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
)

// Persistent data must be on the medium when the guest was told so, on every storage.
func TestHowADiskIsCached(t *testing.T) {
	lasting := launch.PreparedImage{Source: "/disk.img", SourceFormat: "raw"}
	direct, device, overlay := lasting, lasting, lasting
	direct.DirectIO = true
	device.DirectIO, device.BlockDevice = true, true
	overlay.DirectIO, overlay.Overlay = true, "/overlay"
	cd := v1.DiskDevice{CDRom: &v1.CDRomTarget{}}
	readOnly := v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio, ReadOnly: true}}
	for name, test := range map[string]struct {
		device v1.DiskDevice
		image  launch.PreparedImage
		cache  v1.DriverCache
		io     v1.DriverIO
		want   caching
		native bool
		// error is the refusal, or empty.
		error string
	}{
		"storage without direct I/O":           {image: lasting, want: caching{through: true}},
		"storage with direct I/O":              {image: direct, want: caching{direct: true}},
		"a block device":                       {image: device, want: caching{direct: true}, native: true},
		"what dies with the pod":               {image: overlay, want: caching{noFlush: true}},
		"what is only read":                    {device: readOnly, image: direct},
		"a CD":                                 {device: cd, image: overlay},
		"none":                                 {image: direct, cache: v1.CacheNone, want: caching{direct: true}},
		"none, where that can't be":            {image: lasting, cache: v1.CacheNone, error: "has no direct I/O"},
		"writethrough":                         {image: device, cache: v1.CacheWriteThrough, want: caching{through: true}},
		"writeback":                            {image: device, cache: v1.CacheWriteBack},
		"a block device by threads":            {image: device, io: v1.IOThreads, want: caching{direct: true}},
		"a block device by default":            {image: device, io: "default", want: caching{direct: true}, native: true},
		"a file by default":                    {image: direct, io: "default", want: caching{direct: true}},
		"a file by the kernel":                 {image: direct, io: v1.IONative, want: caching{direct: true}, native: true},
		"the kernel's, through the page cache": {image: lasting, io: v1.IONative, want: caching{through: true}, native: true, error: "native needs the cache mode none"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.device == (v1.DiskDevice{}) {
				test.device = onBus(v1.DiskBusVirtio)
			}
			b := newBuilder(Input{VMI: &v1.VirtualMachineInstance{}})
			d := disk{spec: &v1.Disk{Name: "vol", DiskDevice: test.device, Cache: test.cache, IO: test.io}, path: "devices.disks[0]"}
			got, ok := b.caching(d, test.image, isReadOnly(d.spec))
			native := ok && b.native(d, test.image, got)
			var problems []string
			for _, err := range b.errs {
				problems = append(problems, err.Error())
			}
			said := strings.Join(problems, "; ")
			if got != test.want || native != test.native || (said == "") != (test.error == "") || !strings.Contains(said, test.error) {
				t.Errorf("cached by %+v, native %v, refused %q; want %+v, %v, %q", got, native, said, test.want, test.native, test.error)
			}
		})
	}
}

func TestWhichDisksAreOnlyRead(t *testing.T) {
	for name, test := range map[string]struct {
		device v1.DiskDevice
		want   bool
	}{
		"a CD":                    {v1.DiskDevice{CDRom: &v1.CDRomTarget{}}, true},
		"a disk":                  {v1.DiskDevice{Disk: &v1.DiskTarget{}}, false},
		"a disk that is not to":   {v1.DiskDevice{Disk: &v1.DiskTarget{ReadOnly: true}}, true},
		"a lun":                   {v1.DiskDevice{LUN: &v1.LunTarget{}}, false},
		"a lun that is not to":    {v1.DiskDevice{LUN: &v1.LunTarget{ReadOnly: true}}, true},
		"what is not said at all": {v1.DiskDevice{}, false},
	} {
		if got := isReadOnly(&v1.Disk{DiskDevice: test.device}); got != test.want {
			t.Errorf("%s is only read: %v, want %v", name, got, test.want)
		}
	}
}

func TestTheBusOfADisk(t *testing.T) {
	for name, test := range map[string]struct {
		device v1.DiskDevice
		// start is the bus of a disk from the guest's start, plugged that of a hotplugged disk.
		start, plugged v1.DiskBus
	}{
		"a disk of which nothing is said": {v1.DiskDevice{}, v1.DiskBusSATA, v1.DiskBusSCSI},
		"a disk":                          {onBus(""), v1.DiskBusSATA, v1.DiskBusSCSI},
		"a disk on virtio":                {onBus(v1.DiskBusVirtio), v1.DiskBusVirtio, v1.DiskBusVirtio},
		"a disk on USB":                   {onBus(v1.DiskBusUSB), v1.DiskBusUSB, v1.DiskBusUSB},
		"a CD":                            {v1.DiskDevice{CDRom: &v1.CDRomTarget{}}, v1.DiskBusSATA, v1.DiskBusSATA},
		"a CD on SCSI":                    {v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSCSI}}, v1.DiskBusSCSI, v1.DiskBusSCSI},
		"a lun":                           {v1.DiskDevice{LUN: &v1.LunTarget{}}, v1.DiskBusSCSI, v1.DiskBusSCSI},
		"a lun on a bus":                  {v1.DiskDevice{LUN: &v1.LunTarget{Bus: v1.DiskBusSATA}}, v1.DiskBusSATA, v1.DiskBusSATA},
	} {
		d := &v1.Disk{DiskDevice: test.device}
		if start, plugged := diskBus(d), HotBus(d); start != test.start || plugged != test.plugged {
			t.Errorf("%s: %s from the start, %s when it is plugged; want %s and %s", name, start, plugged, test.start, test.plugged)
		}
	}
}

// A hotplugged disk must get the address of the next start, if that is free.
func TestWhereADiskIsPlugged(t *testing.T) {
	scsi := func(luns ...int) (list []Slot) {
		for _, n := range luns {
			list = append(list, Slot{v1.DiskBusSCSI, n})
		}
		return list
	}
	spec := specOf(hot("a", 0), cold("root", 0, image), hot("b", 0), hot("c", 0))
	started := specOf(hot("a", 0), func(s *v1.VirtualMachineInstanceSpec) {
		cold("one", 0, empty)(s)
		s.Domain.Devices.Disks[1].DiskDevice = onBus(v1.DiskBusSCSI)
	}, hotMedium("cd"), hot("b", 0))
	full := make([]int, maxSCSIDisks)
	for i := range full {
		full[i] = i
	}
	for name, test := range map[string]struct {
		spec   *v1.VirtualMachineInstanceSpec
		volume string
		taken  []Slot
		want   int
	}{
		"the first, in its place":                      {spec, "a", nil, 0},
		"the second, in its place":                     {spec, "b", nil, 1},
		"the third, in its place":                      {spec, "c", scsi(0), 2},
		"its place is taken":                           {spec, "b", scsi(1), 0},
		"its place is taken, and the first":            {spec, "b", scsi(0, 1), 2},
		"behind a disk that the guest started with":    {started, "a", nil, 1},
		"the second behind it, drives are not counted": {started, "b", nil, 2},
		"all but the last are taken":                   {spec, "a", scsi(full[:255]...), 255},
		"all are taken":                                {spec, "a", scsi(full...), -1},
	} {
		got := -1
		if slot, err := FreeSlot(test.spec, test.volume, test.taken); err == nil {
			got = slot.Number
		}
		if got != test.want {
			t.Errorf("%s: LUN %d, want %d", name, got, test.want)
		}
	}
}

func TestWhatCannotBePlugged(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{Spec: *specOf(hot("a", 0), hot("b", 0))}
	vmi.Spec.Domain.Devices.Disks[1].Serial = "mine"
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: "loose", VolumeSource: image})
	in := Input{VMI: vmi, Images: map[string]launch.PreparedImage{"a": {Source: "/a", SourceFormat: "raw"}, "b": {Source: "/b", SourceFormat: "raw"}}}
	for volume, want := range map[string]string{"a": "", "b": "", "none": `the VMI has no disk for the volume "none"`, "loose": `the VMI has no disk for the volume "loose"`} {
		plug, err := BuildPlug(in, volume, Slot{v1.DiskBusSCSI, 7})
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %q", volume, err, want)
		}
		serial := map[string]any{"a": "a", "b": "mine"}[volume]
		if err == nil && (plug.Device["serial"] != serial || plug.Device["lun"] != 7 || plug.Device["bootindex"] != nil) {
			t.Errorf("%s is plugged as %s", volume, plug.Device.text())
		}
	}
	vmi.Spec.Domain.Devices.DisableHotplug = true
	if _, err := BuildPlug(in, "a", Slot{v1.DiskBusSCSI, 7}); err == nil || !strings.Contains(err.Error(), "disableHotplug is set") {
		t.Errorf("a machine that takes nothing: %v", err)
	}
}

// A guest's discards must not free the blocks of a disk that is preallocated, whether it starts with it or gets it later.
func TestADiskStaysPreallocated(t *testing.T) {
	for name, c := range map[string]struct {
		claims map[string]*v1.PersistentVolumeClaimInfo
		status []v1.VolumeStatus
		want   string
	}{
		"nothing is known": {nil, nil, "unmap"},
		"the claim's":      {map[string]*v1.PersistentVolumeClaimInfo{"a": {Preallocated: true}}, nil, ""},
		"another's":        {map[string]*v1.PersistentVolumeClaimInfo{"b": {Preallocated: true}}, nil, "unmap"},
		"the status'":      {nil, []v1.VolumeStatus{{Name: "a", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{Preallocated: true}}}, ""},
		"the claim counts": {map[string]*v1.PersistentVolumeClaimInfo{"a": {}},
			[]v1.VolumeStatus{{Name: "a", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{Preallocated: true}}}, "unmap"},
	} {
		vmi := &v1.VirtualMachineInstance{Spec: *specOf(hot("a", 0))}
		vmi.Status.VolumeStatus = c.status
		plug, err := BuildPlug(Input{VMI: vmi, Claims: c.claims, Images: map[string]launch.PreparedImage{"a": {Source: "/a", SourceFormat: "raw"}}}, "a", Slot{v1.DiskBusSCSI, 7})
		if err != nil || len(plug.Blockdevs) != 2 {
			t.Fatalf("%s: %v, %d nodes", name, err, len(plug.Blockdevs))
		}
		for _, node := range plug.Blockdevs {
			if got, _ := node["discard"].(string); got != c.want {
				t.Errorf("%s: the node %s has discard %q, want %q", name, node["node-name"], got, c.want)
			}
		}
	}
}

func TestAMachineIsBuiltWithTheDisksBehindOneThatComes(t *testing.T) {
	vmi := parseDomain(t, "devices: {}")
	vmi.Spec.Volumes = nil
	hot("later", 0)(&vmi.Spec)
	cold("root", 0, empty)(&vmi.Spec)
	m, err := Build(prepared(vmi))
	if err != nil {
		t.Fatal(err)
	}
	text := render(m.Args())
	if !strings.Contains(text, `"id":"disk-root"`) || strings.Contains(text, `"id":"disk-later"`) {
		t.Errorf("it must have the disk root and not the disk later:\n%s", text)
	}
}

// The last of too many disks must take a free address.
func TestADiskWithoutAPlaceOfItsOwnTakesAFreeOne(t *testing.T) {
	spec := specOf()
	for i := range 9 {
		plug(spec, string(rune('a'+i)), onBus(v1.DiskBusVirtio))
	}
	slot, err := FreeSlot(spec, "i", []Slot{{v1.DiskBusVirtio, 1}})
	if err != nil || slot != (Slot{v1.DiskBusVirtio, 3}) {
		t.Errorf("the ninth of nine disks on eight ports is at %v (%v), want the second port for disks", slot, err)
	}
}
