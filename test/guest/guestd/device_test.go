package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestADeviceFindsItsDriversByItsModalias(t *testing.T) {
	d := &drivers{
		files: parseDep("kernel/virtio-rng.ko: kernel/rng.ko\nkernel/virtio_blk.ko:\n"),
		aliases: parseAliases("alias virtio:d00000002v* virtio_blk\nalias virtio:d00000004v* virtio_rng\n" +
			"alias fs-iso9660 isofs\n# a comment\n"),
	}
	for request, want := range map[string][]string{
		"virtio:d00000002v00001AF4": {"virtio_blk"},
		"virtio:d00000004v00001AF4": {"virtio_rng"},
		"fs-iso9660":                {"isofs"},
		"virtio-rng":                {"virtio_rng"},
		"pci:unknown":               nil,
	} {
		if got := d.match(request); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q, want %q", request, got, want)
		}
	}
	if got := d.files["virtio_rng"]; !reflect.DeepEqual(got, []string{"kernel/virtio-rng.ko", "kernel/rng.ko"}) {
		t.Errorf("virtio_rng is loaded from %q", got)
	}
}

func TestAUeventIsRead(t *testing.T) {
	message := "add@/devices/x/net/eth1\x00ACTION=add\x00DEVPATH=/devices/x/net/eth1\x00SUBSYSTEM=net\x00INTERFACE=eth1\x00"
	want := uevent{action: "add", devpath: "/devices/x/net/eth1", subsystem: "net", iface: "eth1"}
	if got := parseUevent([]byte(message)); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestTheBusAndTheAddressOfADiskAreReadFromItsPath(t *testing.T) {
	for _, test := range []struct{ path, bus, pci string }{
		{"/sys/devices/pci0000:00/0000:00:02.0/0000:01:00.0/virtio1/block/vda", "virtio", "0000:01:00.0"},
		{"/sys/devices/pci0000:00/0000:00:01.0/virtio0/host0/target0:0:0/0:0:0:0/block/sda", "scsi", "0000:00:01.0"},
		{"/sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda", "sata", "0000:00:1f.2"},
		{"/sys/devices/pci0000:00/0000:00:04.0/usb1/1-1/1-1:1.0/host2/target2:0:0/2:0:0:0/block/sdb", "usb", "0000:00:04.0"},
		{"/sys/devices/platform/floppy/block/fd0", "other", ""},
	} {
		if got := diskBus(test.path); got != test.bus {
			t.Errorf("%s: got the bus %s, want %s", test.path, got, test.bus)
		}
		if got := pciAddress(test.path); got != test.pci {
			t.Errorf("%s: got the address %q, want %q", test.path, got, test.pci)
		}
	}
}

func TestTheLabelOfAFileSystemIsRead(t *testing.T) {
	iso := make([]byte, 0x9000)
	copy(iso[0x8001:], "CD001")
	copy(iso[0x8028:], "cidata\x00\x00  ")
	fat := make([]byte, 512)
	copy(fat[0x36:], "FAT16   ")
	copy(fat[0x2b:], "DRYDOCK    ")
	fat32 := make([]byte, 512)
	copy(fat32[0x52:], "FAT32   ")
	copy(fat32[0x47:], "CIDATA     ")
	for want, image := range map[string][]byte{"cidata": iso, "DRYDOCK": fat, "CIDATA": fat32, "": bytes.Repeat([]byte{0}, 512)} {
		name := filepath.Join(t.TempDir(), "image")
		if err := os.WriteFile(name, image, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := labelOf(name); got != want {
			t.Errorf("got the label %q, want %q", got, want)
		}
	}
}

func TestMetadataOfBothKindsAreRead(t *testing.T) {
	var cloud, drive seed
	if err := parseNoCloud([]byte("instance-id: i\nlocal-hostname: vm.example.org\npublic-keys: [a, b]\n"), &cloud); err != nil {
		t.Fatal(err)
	}
	if err := parseConfigDrive([]byte(`{"uuid": "u", "hostname": "vm", "public_keys": {"y": "b", "x": "a\n"}}`), &drive); err != nil {
		t.Fatal(err)
	}
	if want := (seed{instance: "i", hostname: "vm.example.org", keys: []string{"a", "b"}}); !reflect.DeepEqual(cloud, want) {
		t.Errorf("NoCloud: got %+v, want %+v", cloud, want)
	}
	if want := (seed{instance: "u", hostname: "vm", keys: []string{"a", "b"}}); !reflect.DeepEqual(drive, want) {
		t.Errorf("configuration drive: got %+v, want %+v", drive, want)
	}
}

func TestAnInstanceIsRemembered(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "seen")
	for i, want := range []bool{false, true} {
		if known, err := mark(folder, "iid/1:2"); err != nil || known != want {
			t.Errorf("time %d: got %t, %v", i, known, err)
		}
	}
	if known, err := mark(folder, "other"); err != nil || known {
		t.Errorf("another instance: got %t, %v", known, err)
	}
}
