package hostdevice

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

func TestWhatTheKubeVirtObjectPermits(t *testing.T) {
	permitted := &v1.PermittedHostDevices{
		PciHostDevices: []v1.PciHostDevice{
			{PCIVendorSelector: "10DE:1EB8", ResourceName: "nvidia.com/T4", ExternalResourceProvider: true},
			{PCIVendorSelector: "8086:1521", ResourceName: "example.com/nic"},
			{PCIVendorSelector: "8086", ResourceName: "example.com/half"},
			{PCIVendorSelector: "8086:1522", ResourceName: "nameless"},
			{PCIVendorSelector: "8086:10c9", ResourceName: "example.com/nic"},
		},
		USB:             []v1.USBHostDevice{{ResourceName: "example.com/stick"}},
		MediatedDevices: []v1.MediatedHostDevice{{ResourceName: "example.com/vgpu"}},
	}
	want := Permitted{{Name: "example.com/nic", Selectors: []string{"8086:1521", "8086:10c9"}}, {Name: "nvidia.com/T4", Selectors: []string{"10de:1eb8"}, External: true}}
	got := Read(permitted)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:1], got.Local()); diff != "" || len(got) != 2 {
		t.Errorf("virt-handler offers (-want +got):\n%s", diff)
	}
	permitted.PciHostDevices[4].ExternalResourceProvider = true
	if got := Read(permitted).Local(); len(got) != 0 {
		t.Errorf("a resource with another plugin is offered: %v", got)
	}
	most := &v1.PermittedHostDevices{}
	for range MaxPermitted {
		most.PciHostDevices = append(most.PciHostDevices, v1.PciHostDevice{PCIVendorSelector: "8086:1521", ResourceName: "example.com/nic"})
	}
	if got := Read(most); len(got) != 1 || len(got[0].Selectors) != MaxPermitted {
		t.Errorf("many entries of one resource are %d resources", len(got))
	}
	if Read(nil) != nil || Read(&v1.PermittedHostDevices{PciHostDevices: make([]v1.PciHostDevice, MaxPermitted+1)}) != nil {
		t.Error("nothing, or too much, permits something")
	}
}

func TestADeviceHasOneResourceOfVirtHandlers(t *testing.T) {
	list := []v1.PciHostDevice{
		{PCIVendorSelector: "8086:1521", ResourceName: "example.com/z"},
		{PCIVendorSelector: "8086:1521", ResourceName: "example.com/a"},
		{PCIVendorSelector: "8086:1522", ResourceName: "example.com/b"},
		{PCIVendorSelector: "8086:1521", ResourceName: "example.com/b"},
		{PCIVendorSelector: "8086:1521", ResourceName: "example.com/plugged", ExternalResourceProvider: true},
		{PCIVendorSelector: "8086:1522", ResourceName: layout.ResourceKVM},
	}
	want := Permitted{
		{Name: "example.com/b", Selectors: []string{"8086:1522"}},
		{Name: "example.com/plugged", Selectors: []string{"8086:1521"}, External: true},
		{Name: "example.com/z", Selectors: []string{"8086:1521"}},
	}
	if diff := cmp.Diff(want, Read(&v1.PermittedHostDevices{PciHostDevices: list})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNamesOfDevicesAndResources(t *testing.T) {
	for text, good := range map[string]bool{"10de:1eb8": true, "10DE:1eb8": true, "": false, "10de": false, "10de:1eb88": false, "10de:1eg8": false, "10de:1eb8\n": false, "10de:*": false} {
		if (CheckSelector(text) == "") != good {
			t.Errorf("the selector %q: %q", text, CheckSelector(text))
		}
	}
	for name, good := range map[string]bool{
		"example.com/gpu": true, "nvidia.com/TU104GL_Tesla_T4": true, "devices.kubevirt.io/nvme": true, "": false, "gpu": false, "example.com/": false, layout.ResourceKVM: false, layout.ResourceTUN: false, layout.ResourceVhostNet: false, "a/b/c": false,
		"kubernetes.io/gpu": false, "node.kubernetes.io/gpu": false, "x.K8s.io/gpu": false, "requests.example.com/gpu": false, "example.com/g pu": false, "notkubernetes.io/a": true,
	} {
		if (CheckResource(name) == "") != good {
			t.Errorf("the resource %q: %q", name, CheckResource(name))
		}
	}
}
