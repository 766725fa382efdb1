package sriov

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

func TestWhatADefinitionMayAskFor(t *testing.T) {
	long := strings.Repeat("a", 64)
	ofDomain := func(name string) string {
		return fmt.Sprintf("asks for %q in its annotation k8s.v1.cni.cncf.io/resourceName: resources of that domain are not for networks", name)
	}
	for name, want := range map[string]string{
		"example.test/vf":           "",
		"intel.com/sriov_netdevice": "",
		"example.test/" + long[:63]: "",
		"notkubernetes.io/vf":       "",
		"":                          "has no annotation k8s.v1.cni.cncf.io/resourceName, which names the resource that a device plugin offers for it",
		"cpu":                       `asks for "cpu" in its annotation k8s.v1.cni.cncf.io/resourceName: it must be a device plugin's, as example.com/vf`,
		"memory":                    `asks for "memory" in its annotation k8s.v1.cni.cncf.io/resourceName: it must be a device plugin's, as example.com/vf`,
		"hugepages-2Mi":             `asks for "hugepages-2Mi" in its annotation k8s.v1.cni.cncf.io/resourceName: it must be a device plugin's, as example.com/vf`,
		"kubernetes.io/vf":          ofDomain("kubernetes.io/vf"),
		"node.kubernetes.io/vf":     ofDomain("node.kubernetes.io/vf"),
		"resource.k8s.io/vf":        ofDomain("resource.k8s.io/vf"),
		layout.ResourceKVM:          ofDomain(layout.ResourceKVM),
		"kubevirt.io/kvm":           ofDomain("kubevirt.io/kvm"),
		"Devices.KubeVirt.io/kvm":   ofDomain("Devices.KubeVirt.io/kvm"),
		"drydock.dev/vf":            ofDomain("drydock.dev/vf"),
		"requests.example.test/vf":  `asks for "requests.example.test/vf" in its annotation k8s.v1.cni.cncf.io/resourceName: no resource begins like that`,
	} {
		got, err := Resource(map[string]string{ResourceAnnotation: name, "k8s.v1.cni.cncf.io/other": "x"})
		said := ""
		if err != nil {
			said = err.Error()
		}
		if said != want || err == nil && string(got) != name {
			t.Errorf("%q: %q, %q, want %q", name, got, said, want)
		}
	}
	for _, odd := range []string{"example.test/", "/vf", "example.test/vf/more", "example test/vf", "example.test/v f", "example.test/" + long, strings.Repeat(long+".", 4) + "test/vf", "example.test/vf\n"} {
		got, err := Resource(map[string]string{ResourceAnnotation: odd})
		if err == nil {
			t.Errorf("%q is asked for as %q", odd, got)
		} else if len(err.Error()) > 500 {
			t.Errorf("%q: the refusal has %d characters", odd, len(err.Error()))
		}
	}
}

func TestWhatAPCIAddressIs(t *testing.T) {
	for text, want := range map[string]bool{
		"0000:65:00.2": true, "0001:ff:1f.7": true, "ffff:00:0a.0": true,
		"": false, "0000:65:00.8": false, "0000:65:20.0": false, "0000:65:00": false, "65:00.2": false, "0000:65:00.2 ": false,
		"0000:65:00.2\n": false, "0000:65:00.2,x-pci-vendor-id=1": false, "0000:6G:00.2": false, "0000:FF:00.2": false, "10000:65:00.2": false, "000:65:00.2": false,
		"0000:65:0.2": false, "../0000:65:00.2": false, "0000:065:00.2": false,
	} {
		if IsAddress(text) != want {
			t.Errorf("%q is an address: %v", text, !want)
		}
	}
}

func TestTheDevicesOfAContainer(t *testing.T) {
	for name, c := range map[string]struct {
		environment []string
		want        []string
	}{
		"none":                  {[]string{"PATH=/bin", "HOME"}, nil},
		"one":                   {[]string{"PATH=/bin", "PCIDEVICE_EXAMPLE_TEST_VF=0000:65:00.2"}, []string{"0000:65:00.2"}},
		"several, of resources": {[]string{"PCIDEVICE_A=0000:65:00.2,0000:65:00.3", "PCIDEVICE_B=0000:66:00.0"}, []string{"0000:65:00.2", "0000:65:00.3", "0000:66:00.0"}},
		"what is none": {[]string{`PCIDEVICE_A_INFO={"0000:65:00.2":{"generic":{"deviceID":"0000:65:00.2"}}}`, "PCIDEVICE_A=,0000:65:00.9, 0000:65:00.3,0000:65:00.4=", "PCIDEVICE_B"},
			nil},
		"other variables": {[]string{"DEVICE=0000:65:00.2", "XPCIDEVICE_A=0000:65:00.2", "PCIDEVICEA=0000:65:00.2", "A=PCIDEVICE_A=0000:65:00.2"}, nil},
	} {
		if got := slices.Sorted(maps.Keys(Given(c.environment))); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	var many []string
	for i := range maxDevices + 1 {
		many = append(many, fmt.Sprintf("PCIDEVICE_A=0000:%02x:%02x.0", i/32, i%32))
	}
	if got := Given(many); len(got) != maxDevices {
		t.Errorf("a container has %d devices", len(got))
	}
}

func TestWhetherAGuestHasDevices(t *testing.T) {
	device := func(state v1.InterfaceState) v1.Interface {
		return v1.Interface{State: state, InterfaceBindingMethod: v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}}
	}
	bridge := v1.Interface{InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}}
	for name, c := range map[string]struct {
		list []v1.Interface
		want bool
	}{
		"none":               {nil, false},
		"another":            {[]v1.Interface{bridge}, false},
		"one":                {[]v1.Interface{device("")}, true},
		"one that is absent": {[]v1.Interface{device(v1.InterfaceStateAbsent)}, true},
		"one after another":  {[]v1.Interface{bridge, device("")}, true},
	} {
		spec := &v1.VirtualMachineInstanceSpec{}
		spec.Domain.Devices.Interfaces = c.list
		if got := Any(spec); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
