package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

// withHostDevices adds host devices and GPUs, and the addresses of all.
func withHostDevices(in Input, hostDevices, gpus int) Input {
	devices := &in.VMI.Spec.Domain.Devices
	for i := range hostDevices {
		devices.HostDevices = append(devices.HostDevices, v1.HostDevice{Name: fmt.Sprintf("dev%d", i), DeviceName: "example.test/card"})
	}
	for i := range gpus {
		devices.GPUs = append(devices.GPUs, v1.GPU{Name: fmt.Sprintf("gpu%d", i), DeviceName: "example.test/card"})
	}
	in.HostDevices = map[string]string{}
	for i, d := range hostdevice.Of(&in.VMI.Spec) {
		in.HostDevices[d.ID] = fmt.Sprintf("fffe:ff:%02x.7", i%32)
	}
	return in
}

// Guests must find their other devices where they were without them.
func TestDevicesOfTheNodeMoveNoOther(t *testing.T) {
	for name, nics := range map[string]int{"few": 2, "many": 40} {
		before, err := Build(prepared(withNICs(t, nics)))
		if err != nil {
			t.Fatal(err)
		}
		in := withHostDevices(prepared(withNICs(t, nics)), 1, 8)
		m, err := Build(in)
		if err != nil {
			t.Fatal(err)
		}
		was, is := strings.Split(render(before.Args()), "\n"), strings.Split(render(m.Args()), "\n")
		var added []string
		for _, line := range is {
			if !slices.Contains(was, line) {
				added = append(added, line)
			}
		}
		for _, want := range []string{
			`-device {"addr":"0x1a.0","bus":"pcie.0","chassis":153,"driver":"pcie-root-port","id":"port152","multifunction":true}`,
			`-device {"addr":"0x1a.7","bus":"pcie.0","chassis":160,"driver":"pcie-root-port","id":"port159","multifunction":false}`,
			`-device {"addr":"0x1b.0","bus":"pcie.0","chassis":161,"driver":"pcie-root-port","id":"port160","multifunction":true}`,
			`-device {"addr":"0x0","bus":"port152","driver":"vfio-pci","host":"fffe:ff:00.7","id":"hostdev-dev0"}`,
			`-device {"addr":"0x0","bus":"port160","driver":"vfio-pci","host":"fffe:ff:08.7","id":"gpu-gpu7"}`,
		} {
			if !slices.Contains(added, want) {
				t.Errorf("with %s others the machine lacks %s", name, want)
			}
		}
		if len(added) != 18 || len(is) != len(was)+18 {
			t.Errorf("with %s others it adds %d of %d lines:\n%s", name, len(added), len(is)-len(was), strings.Join(added, "\n"))
		}
		ports := strings.Count(strings.Join(was, "\n"), `"driver":"pcie-root-port"`)
		if at := HostDeviceAddresses(&in.VMI.Spec); len(at) != 9 || at[0] != fmt.Sprintf("0000:%02x:00.0", ports+1) || at[8] != fmt.Sprintf("0000:%02x:00.0", ports+9) {
			t.Errorf("beside %d ports the guest finds them at %v", ports, at)
		}
	}
}

func TestWhichDevicesOfTheNodeAreRefused(t *testing.T) {
	in := withHostDevices(prepared(withNICs(t, 1)), 1, 1)
	in.VMI.Spec.Domain.Devices.GPUs[0].Name = "a,b"
	delete(in.HostDevices, "hostdev-dev0")
	const want = "spec.domain.devices.hostDevices[0].deviceName: which device of the node it is has not been found out\n" +
		`spec.domain.devices.gpus[0].name: "a,b" must be of letters, digits, '-', '.' and '_'` + "\n" +
		"spec.domain.devices.gpus[0].deviceName: which device of the node it is has not been found out"
	if _, err := Build(in); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if _, err := Build(withHostDevices(prepared(withNICs(t, 1)), 20, 12)); err != nil {
		t.Errorf("32 devices: %v", err)
	}
	if _, err := Build(withHostDevices(prepared(withNICs(t, 1)), 20, 13)); err == nil || err.Error() != "spec.domain.devices: a machine has at most 32 hostDevices and gpus together" {
		t.Errorf("33 devices: %v", err)
	}
	// Their ports take those of others: 14 slots are left.
	if _, err := Build(withHostDevices(prepared(withNICs(t, 56)), 1, 0)); err != nil {
		t.Errorf("beside 56 interfaces: %v", err)
	}
	if _, err := Build(withHostDevices(prepared(withNICs(t, 57)), 1, 0)); err == nil ||
		err.Error() != "spec.domain.devices: the interfaces and virtio disks need 113 PCI ports, a machine has at most 112" {
		t.Errorf("beside 57 interfaces: %v", err)
	}
}

func TestWhoMayHaveDevices(t *testing.T) {
	none, gone, gpu := withNICs(t, 2), withNICs(t, 2), withHostDevices(prepared(withNICs(t, 1)), 0, 1).VMI
	device(gone, 1)
	gone.Spec.Domain.Devices.Interfaces[1].State = v1.InterfaceStateAbsent
	for vmi, want := range map[*v1.VirtualMachineInstance][2]bool{none: {false, false}, gone: {false, true}, gpu: {true, true}} {
		if got := [2]bool{HasDevices(&vmi.Spec), MayHaveDevices(&vmi.Spec)}; got != want {
			t.Errorf("%+v: it has and may have %v, want %v", vmi.Spec.Domain.Devices, got, want)
		}
	}
}

// QEMU must get as far as the node's device: only a machine with an IOMMU can open it.
func TestQEMULooksForTheDeviceOfTheNode(t *testing.T) {
	vmi := adapted(t, "testdata/smallest.yaml")
	h := newHost(t)
	in := withHostDevices(h.input(vmi), 1, 8)
	m, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	var passed []Properties
	m.Devices = slices.DeleteFunc(m.Devices, func(p Properties) bool {
		if p["driver"] == hostdevice.Driver {
			passed = append(passed, p)
			return true
		}
		return false
	})
	client := h.start(m)
	if len(passed) != 9 {
		t.Fatalf("%d devices are passed", len(passed))
	}
	for _, p := range passed {
		err := client.Execute(t.Context(), "device_add", p, nil)
		if want := fmt.Sprintf("vfio /sys/bus/pci/devices/%s: no such host device", p["host"]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", p.text(), err, want)
		}
	}
}
