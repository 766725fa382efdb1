package machine

import (
	"fmt"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestWhichAddressesAreRootPorts(t *testing.T) {
	for address, want := range map[string]int{
		"0000:01:00.0": 0, "0000:05:00.0": 4, "0000:0a:00.0": 9, "0000:0A:00.0": 9, "0000:98:00.0": 151,
		"0000:00:00.0": -1, "0000:99:00.0": -1, "0000:ff:00.0": -1, "0000:zz:00.0": -1, "0000:5:00.0": -1, "0000:005:00.0": -1,
		"05": -1, "0000:05": -1, "05:00.0": -1, "0001:05:00.0": -1, "0000:05:01.0": -1, "0000:05:00.1": -1, "0000:-5:00.0": -1, "": -1,
	} {
		port, err := parsePCIAddress(address)
		if err != nil {
			port = -1
		}
		if port != want {
			t.Errorf("%q is port %d (%v), want %d", address, port, err, want)
		}
	}
}

func TestAddressesOfInterfaces(t *testing.T) {
	vmi := parseDomain(t, `devices: {interfaces: [{name: a}, {name: b, pciAddress: "0000:03:00.0"}, {name: c, state: absent}, {name: d}]}`)
	addresses := NICAddresses(&vmi.Spec)
	if got, want := strings.Join(addresses, " "), "0000:01:00.0 0000:03:00.0 0000:05:00.0 0000:07:00.0"; got != want {
		t.Errorf("the addresses are %s, want %s", got, want)
	}
	m, err := Build(prepared(vmi))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a", "b", "c", "d"} {
		port, _ := parsePCIAddress(addresses[i])
		for _, d := range m.Devices {
			if d["id"] == NICID(name) && d["bus"] != PortID(port) {
				t.Errorf("interface %s is on %s, and its address is that of %s", name, d["bus"], PortID(port))
			}
		}
	}
}

// A machine has 152 ports: 76 for interfaces and as many for virtio disks. While some are free it keeps four for disks
// that are plugged later.
func TestRoomForVirtioDisks(t *testing.T) {
	for name, test := range map[string]struct{ disks, nics, room, ports int }{
		"an empty machine":                          {0, 0, 8, 16},
		"as many interfaces as have ports at least": {0, 8, 8, 16},
		"an interface more":                         {0, 9, 8, 17},
		"four disks":                                {4, 0, 4, 16},
		"five disks, and four can come":             {5, 0, 4, 18},
		"72 disks, and four can come":               {72, 0, 4, 152},
		"75 disks, and one can come":                {75, 0, 1, 152},
		"as many disks as there are ports":          {76, 0, 0, 152},
		"as many interfaces as there are ports":     {1, 76, 74, 151},
	} {
		vmi := parseDomain(t, "devices: {}")
		for i := range test.disks {
			name := fmt.Sprintf("disk%d", i)
			vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{Name: name, DiskDevice: onBus(v1.DiskBusVirtio)})
			vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: empty})
		}
		for i := range test.nics {
			vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, v1.Interface{Name: fmt.Sprintf("nic%d", i)})
		}
		m, err := Build(prepared(vmi))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ports := 0
		for _, d := range m.Devices {
			if d["driver"] == "pcie-root-port" {
				ports++
			}
		}
		if room := Room(&vmi.Spec, v1.DiskBusVirtio); room != test.room || ports != test.ports {
			t.Errorf("%s: room for %d disks, %d ports; want %d and %d", name, room, ports, test.room, test.ports)
		}
	}
}

// QEMU limits the name of a block node to 31 characters.
func TestNamesOfBlockNodesFitIntoQEMU(t *testing.T) {
	for length, kept := range map[int]bool{1: true, 28: true, 29: true, 30: false, 63: false} {
		volume := strings.Repeat("a", length)
		name := NodeName(volume)
		if (name == "n-"+volume) != kept || len(name) > 31 || !kept && len(name) != 31 {
			t.Errorf("the node of a volume whose name has %d letters is %q", length, name)
		}
		if name == NodeName(strings.Repeat("a", length-1)+"b") {
			t.Errorf("two volumes whose names have %d letters have the same node", length)
		}
	}
}
