package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// withNICs is a VMI with count interfaces.
func withNICs(t *testing.T, count int) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := parseDomain(t, "devices: {}")
	for i := range count {
		vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, v1.Interface{Name: fmt.Sprintf("nic%d", i)})
	}
	return vmi
}

// A hotplugged interface must have the address and arguments that it would have from the start.
func TestAPluggedInterfaceIsWhereTheNextStartPutsIt(t *testing.T) {
	for name, edit := range map[string]func(*v1.VirtualMachineInstance){
		"as it is": func(*v1.VirtualMachineInstance) {},
		"after one that is gone": func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.Interfaces[1].State = v1.InterfaceStateAbsent
		},
		"with several queues": func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.CPU = &v1.CPU{Cores: 4}
			vmi.Spec.Domain.Devices.NetworkInterfaceMultiQueue = new(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := withNICs(t, 3)
			edit(vmi)
			in := prepared(vmi)
			netdev, device, err := BuildNIC(in, "nic2")
			if err != nil {
				t.Fatal(err)
			}
			whole, err := Build(in)
			if err != nil {
				t.Fatal(err)
			}
			text := func(p Properties) string { return p.text() }
			has := func(list []Properties, p Properties) bool {
				return slices.ContainsFunc(list, func(q Properties) bool { return text(q) == text(p) })
			}
			if !has(whole.Netdevs, netdev) || !has(whole.Devices, device) || device["bus"] != PortID(4) {
				t.Errorf("it is plugged as %s with %s, and the machine starts with\n%s", text(device), text(netdev), strings.Join(whole.Args(), "\n"))
			}
		})
	}
	in := prepared(withNICs(t, 1))
	if _, _, err := BuildNIC(in, "none"); err == nil || !strings.Contains(err.Error(), `the VMI has no interface "none"`) {
		t.Errorf("an interface that is not there: %v", err)
	}
	delete(in.NICs, "nic0")
	if _, _, err := BuildNIC(in, "nic0"); err == nil || !strings.Contains(err.Error(), "has not been prepared") {
		t.Errorf("an interface without a tap: %v", err)
	}
	bad := prepared(withNICs(t, 2))
	bad.VMI.Spec.Domain.Devices.Interfaces[0].PciAddress = "05"
	if _, _, err := BuildNIC(bad, "nic1"); err == nil || !strings.Contains(err.Error(), "pciAddress") {
		t.Errorf("a machine that can't be: %v", err)
	}
}

func TestWhetherAMachineHasAPortForAnotherInterface(t *testing.T) {
	disks := func(vmi *v1.VirtualMachineInstance, count int) {
		for i := range count {
			name := fmt.Sprintf("disk%d", i)
			vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{Name: name, DiskDevice: onBus(v1.DiskBusVirtio)})
			vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: empty})
		}
	}
	for _, c := range []struct {
		nics, disks, at int
		want            bool
	}{
		{1, 0, 1, true}, {1, 0, 7, true}, {1, 0, 8, false}, {8, 0, 8, false}, {9, 0, 9, false}, {9, 0, 8, true},
		{1, 5, 8, true}, {1, 5, 9, false}, {3, 0, 1, true},
	} {
		vmi := withNICs(t, c.nics)
		disks(vmi, c.disks)
		if got := HasNICPort(&vmi.Spec, c.at); got != c.want {
			t.Errorf("with %d interfaces and %d disks there is a port for interface %d: %v", c.nics, c.disks, c.at, got)
		}
		if len(vmi.Spec.Domain.Devices.Interfaces) != c.nics {
			t.Errorf("the specification has got %d interfaces", len(vmi.Spec.Domain.Devices.Interfaces))
		}
	}
	pinned := withNICs(t, 2)
	pinned.Spec.Domain.Devices.Interfaces[0].PciAddress = "05"
	if HasNICPort(&pinned.Spec, 2) {
		t.Error("a machine that can't be has a port")
	}
}

// device makes an interface a device of the node.
func device(vmi *v1.VirtualMachineInstance, at int) {
	vmi.Spec.Domain.Devices.Interfaces[at].InterfaceBindingMethod = v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}
}

func TestADeviceOfTheNodeIsPassedThrough(t *testing.T) {
	vmi := withNICs(t, 3)
	before, err := Build(prepared(vmi))
	if err != nil {
		t.Fatal(err)
	}
	device(vmi, 1)
	in := prepared(vmi)
	in.NICs["nic1"] = NIC{Device: "0000:65:00.2", MAC: "02:00:00:00:00:01"}
	m, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	const passed = `{"addr":"0x0","bus":"port2","driver":"vfio-pci","host":"0000:65:00.2","id":"net-nic1","romfile":""}`
	was, is := strings.Split(render(before.Args()), "\n"), strings.Split(render(m.Args()), "\n")
	for _, line := range is {
		if !slices.Contains(was, line) && line != "-device "+passed {
			t.Errorf("it adds %s", line)
		}
	}
	if !slices.Contains(is, "-device "+passed) || len(is) != len(was)-1 {
		t.Errorf("the machine is\n%s", strings.Join(is, "\n"))
	}
	netdev, plugged, err := BuildNIC(in, "nic1")
	if err != nil || netdev != nil || plugged.text() != passed {
		t.Errorf("it is plugged as %s with %s: %v", plugged.text(), netdev.text(), err)
	}
	vmi.Spec.Domain.Devices.Interfaces[1].BootOrder, vmi.Spec.Domain.Devices.Interfaces[1].ACPIIndex = new(uint(3)), 9
	vmi.Spec.Domain.Devices.Interfaces[1].PciAddress = "0000:20:00.0"
	const chosen = `{"acpi-index":9,"addr":"0x0","bootindex":3,"bus":"port31","driver":"vfio-pci","host":"0000:65:00.2","id":"net-nic1"}`
	if _, plugged, err := BuildNIC(in, "nic1"); err != nil || plugged.text() != chosen {
		t.Errorf("with wishes it is plugged as %s: %v", plugged.text(), err)
	}
	in.NICs["nic1"] = NIC{Tap: "tap1"}
	const unknown = `spec.domain.devices.interfaces[1].sriov: which device of the node interface "nic1" is has not been found out`
	if _, _, err := BuildNIC(in, "nic1"); err == nil || err.Error() != unknown {
		t.Errorf("without its device: %v", err)
	}
}

func TestWhetherAGuestIsToHaveDevices(t *testing.T) {
	vmi := withNICs(t, 2)
	if HasDevices(&vmi.Spec) {
		t.Error("without one it has")
	}
	device(vmi, 1)
	if !HasDevices(&vmi.Spec) || IsDevice(&vmi.Spec.Domain.Devices.Interfaces[0]) || !IsDevice(&vmi.Spec.Domain.Devices.Interfaces[1]) {
		t.Error("with one it has not")
	}
	vmi.Spec.Domain.Devices.Interfaces[1].State = v1.InterfaceStateAbsent
	if HasDevices(&vmi.Spec) || IsDevice(&vmi.Spec.Domain.Devices.Interfaces[1]) {
		t.Error("with one that is absent it has")
	}
}
