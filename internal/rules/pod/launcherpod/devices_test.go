package launcherpod

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

// onDevices is a VMI with SR-IOV interfaces, each on the network of its name, beside a bridged one.
func onDevices(names ...string) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name, vmi.Namespace, vmi.UID = "web", "lab", "0f9c5e5e-0000-4000-8000-000000000003"
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("128Mi"))}
	add := func(name string, how v1.InterfaceBindingMethod) {
		vmi.Spec.Networks = append(vmi.Spec.Networks, v1.Network{Name: name, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "nets/" + name}}})
		vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, v1.Interface{Name: name, InterfaceBindingMethod: how})
	}
	add("bridged", v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}})
	for _, name := range names {
		add(name, v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}})
	}
	return vmi
}

func TestAPodAsksForTheDevicesOfItsInterfaces(t *testing.T) {
	const vf, other = corev1.ResourceName("example.test/vf"), corev1.ResourceName("example.test/other")
	absent := func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.Interfaces[1].State = v1.InterfaceStateAbsent
	}
	asking := func(requests, limits string) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Resources.Requests = corev1.ResourceList{vf: resource.MustParse(requests)}
			vmi.Spec.Domain.Resources.Limits = corev1.ResourceList{vf: resource.MustParse(limits)}
		}
	}
	all := map[string]corev1.ResourceName{"a": vf, "b": vf, "c": other}
	for name, c := range map[string]struct {
		vmi   *v1.VirtualMachineInstance
		edit  func(*v1.VirtualMachineInstance)
		vf, c int64
		// more is the pod's additional memory, in GiB, over one without devices.
		more int64
	}{
		"none":                              {vmi: onDevices()},
		"one":                               {vmi: onDevices("a"), vf: 1, more: 1},
		"two of a kind, and one of another": {vmi: onDevices("a", "b", "c"), vf: 2, c: 1, more: 1},
		"one that is absent":                {vmi: onDevices("a"), edit: absent},
		"one that is absent, of two":        {vmi: onDevices("a", "b"), edit: absent, vf: 1, more: 1},
		"beside what it asks for":           {vmi: onDevices("a", "b"), edit: asking("1", "1"), vf: 3, more: 1},
		"beside what it requests":           {vmi: onDevices("a"), edit: asking("2", "0"), vf: 3, more: 1},
		"beside what it is limited to":      {vmi: onDevices("a"), edit: asking("0", "2"), vf: 3, more: 1},
	} {
		t.Run(name, func(t *testing.T) {
			if c.edit != nil {
				c.edit(c.vmi)
			}
			pod, err := Render(c.vmi, emulated, "launcher", Facts{Devices: all})
			if err != nil {
				t.Fatal(err)
			}
			provisioning, err := RenderProvisioning(c.vmi, emulated, "launcher", Facts{Devices: all})
			if err != nil {
				t.Fatal(err)
			}
			target, err := RenderTarget(c.vmi, Target{Migration: "m", SourceNode: "node1"}, emulated, "launcher", Facts{Devices: all})
			if err != nil {
				t.Fatal(err)
			}
			without, err := Render(onDevices(), emulated, "launcher", Facts{})
			if err != nil {
				t.Fatal(err)
			}
			memory := without.Spec.Containers[0].Resources.Requests.Memory().Value() + c.more<<30
			for _, p := range []*corev1.Pod{pod, provisioning, target} {
				asks := p.Spec.Containers[0].Resources
				for resource, want := range map[corev1.ResourceName]int64{vf: c.vf, other: c.c} {
					requests, limits := asks.Requests[resource], asks.Limits[resource]
					if requests.Value() != want || limits.Value() != want {
						t.Errorf("%s requests %s of %s and is limited to %s, want %d", p.Name, &requests, resource, &limits, want)
					}
				}
				if asks.Requests.Memory().Value() != memory {
					t.Errorf("%s requests %s of memory, want %d", p.Name, asks.Requests.Memory(), memory)
				}
			}
		})
	}
	if _, err := Render(onDevices("a"), emulated, "launcher", Facts{}); err == nil || err.Error() != "spec.domain.devices.interfaces[1].sriov: the resource of its network is not known" {
		t.Errorf("a pod is made without its device: %v", err)
	}
	if _, err := RenderProvisioning(onDevices("a"), emulated, "launcher", Facts{}); err == nil {
		t.Error("a provisioning pod is made without its device")
	}
}

func TestAPodAsksForThePermittedDevicesOfItsNode(t *testing.T) {
	const vf, card = corev1.ResourceName("example.test/vf"), corev1.ResourceName("example.test/card")
	settings := emulated
	settings.HostDevices = hostdevice.Permitted{{Name: string(card)}, {Name: string(vf)}}
	vmi := onDevices("a")
	vmi.Spec.Domain.Devices.HostDevices = []v1.HostDevice{{Name: "n", DeviceName: string(card)}, {Name: "v", DeviceName: string(vf)}}
	vmi.Spec.Domain.Devices.GPUs = []v1.GPU{{Name: "g", DeviceName: string(card)}}
	facts := Facts{Devices: map[string]corev1.ResourceName{"a": vf}}
	pod, err := Render(vmi, settings, "launcher", facts)
	if err != nil {
		t.Fatal(err)
	}
	asks := pod.Spec.Containers[0].Resources
	for _, list := range []corev1.ResourceList{asks.Requests, asks.Limits} {
		if cards, vfs := list[card], list[vf]; cards.Value() != 2 || vfs.Value() != 2 {
			t.Errorf("the pod asks for %s and %s, want 2 of each", &cards, &vfs)
		}
	}
	only := onDevices()
	before, err := Render(only, settings, "launcher", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	only.Spec.Domain.Devices.GPUs = vmi.Spec.Domain.Devices.GPUs
	after, err := Render(only, settings, "launcher", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if more := after.Spec.Containers[0].Resources.Requests.Memory().Value() - before.Spec.Containers[0].Resources.Requests.Memory().Value(); more != 1<<30 {
		t.Errorf("it requests %d bytes more memory, want 1 GiB", more)
	}
	// Admission may have been before the permission was withdrawn.
	const refused = "spec.domain.devices.gpus[0].deviceName: GPU example.test/card is not permitted"
	if pod, err := Render(only, emulated, "launcher", Facts{}); err == nil || !strings.HasPrefix(err.Error(), refused) {
		t.Errorf("a pod is made for what is not permitted: %v, %v", pod, err)
	}
}

func TestWhichNetworksNeedDevices(t *testing.T) {
	vmi := onDevices("b", "a", "gone")
	vmi.Spec.Domain.Devices.Interfaces[3].State = v1.InterfaceStateAbsent
	vmi.Spec.Networks = append(vmi.Spec.Networks, v1.Network{Name: "pods"}, v1.Network{Name: "lonely", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{}}})
	vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, v1.Interface{Name: "pods", InterfaceBindingMethod: v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}})
	var got []string
	for _, n := range DeviceNetworks(vmi) {
		got = append(got, n.Name+" "+n.Namespace+"/"+n.Attachment.Name)
	}
	if want := []string{"b nets/b", "a nets/a"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestADeviceIsGivenItsMAC(t *testing.T) {
	vmi := onDevices("a", "b")
	vmi.Spec.Domain.Devices.Interfaces[2].MacAddress = "02-00-00-00-00-AA"
	list := Attachments(vmi)
	if list[0].MAC != "" || list[1].MAC != machine.MAC(vmi, "a") || list[2].MAC != "02:00:00:00:00:aa" {
		t.Errorf("the pod asks for %+v", list)
	}
	if text := Networks(vmi); strings.Count(text, `"mac":`) != 2 || !strings.Contains(text, `"mac":"02:00:00:00:00:aa"`) {
		t.Errorf("the pod asks for %s", text)
	}
}
