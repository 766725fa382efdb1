package launcherpod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/network/networkbinding"
)

func TestAPodIsOnTheNetworksThatItsGuestIsOn(t *testing.T) {
	multus := func(name, of string) v1.Network {
		return v1.Network{Name: name, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: of}}}
	}
	pod := v1.Network{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}}
	for name, c := range map[string]struct {
		networks []v1.Network
		absent   string
		want     string
	}{
		"the pods' own network alone": {[]v1.Network{pod}, "", ""},
		"one that is absent":          {[]v1.Network{pod, multus("red", "red")}, "red", ""},
		"one that is absent, of two":  {[]v1.Network{multus("other", "nets/blue"), multus("red", "red")}, "other", `[{"name":"red","namespace":"lab","interface":"podb1f51a511f1"}]`},
		"networks of its namespace and of another": {[]v1.Network{pod, multus("red", "red"), multus("other", "nets/blue")}, "",
			`[{"name":"red","namespace":"lab","interface":"podb1f51a511f1"},{"name":"blue","namespace":"nets","interface":"podd9298a10d1b"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			vmi.Name, vmi.Namespace, vmi.UID, vmi.Spec.Networks = "web", "lab", "0f9c5e5e-0000-4000-8000-000000000003", c.networks
			vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("128Mi"))}
			vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: c.absent, State: v1.InterfaceStateAbsent}, {Name: "green", State: v1.InterfaceStateLinkDown}}
			vmi.Annotations = map[string]string{MadeWithAnnotation: "a lie"}
			got, err := Render(vmi, emulated, "launcher", Facts{})
			if err != nil {
				t.Fatal(err)
			}
			if value := got.Annotations[NetworksAnnotation]; value != c.want {
				t.Errorf("it asks for %s, want %s", value, c.want)
			}
			if value := got.Annotations[MadeWithAnnotation]; value != c.want {
				t.Errorf("it says that it is made with %s, want %s", value, c.want)
			}
			provisioning, err := RenderProvisioning(vmi, emulated, "launcher", Facts{})
			if err != nil {
				t.Fatal(err)
			}
			if value := provisioning.Annotations[NetworksAnnotation]; value != "" {
				t.Errorf("a provisioning pod asks for %s", value)
			}
		})
	}
}

func TestAPodAsksForThePluginsOfItsBindings(t *testing.T) {
	settings := emulated
	settings.NetworkBindings = networkbinding.Registered{
		"plain":  {DomainAttachmentType: v1.Tap},
		"here":   {DomainAttachmentType: v1.Tap, NetworkAttachmentDefinition: "tapper", ComputeResourceOverhead: &v1.ResourceRequirementsWithoutClaims{Requests: corev1.ResourceList{"memory": resource.MustParse("7Mi")}}},
		"theirs": {DomainAttachmentType: v1.ManagedTap, NetworkAttachmentDefinition: "nets/bridger", ComputeResourceOverhead: &v1.ResourceRequirementsWithoutClaims{Requests: corev1.ResourceList{"memory": resource.MustParse("100Mi")}}},
	}
	bound := func(name, binding string) v1.Interface {
		return v1.Interface{Name: name, Binding: &v1.PluginBinding{Name: binding}}
	}
	gone := bound("gone", "here")
	gone.State = v1.InterfaceStateAbsent
	render := func(interfaces ...v1.Interface) (*corev1.Pod, error) {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Name, vmi.Namespace, vmi.UID = "web", "lab", "0f9c5e5e-0000-4000-8000-000000000003"
		vmi.Spec.Networks = []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}}, {Name: "red", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "red"}}}}
		vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("128Mi"))}
		vmi.Spec.Domain.Devices.Interfaces = interfaces
		return Render(vmi, settings, "launcher", Facts{})
	}
	memory := func(pod *corev1.Pod) int64 {
		return pod.Spec.Containers[0].Resources.Requests.Memory().Value() / mebibyte
	}
	const red = `{"name":"red","namespace":"lab","interface":"podb1f51a511f1"}`
	without, err := render(bound("default", "plain"), bound("red", "plain"))
	if err != nil || without.Annotations[NetworksAnnotation] != "["+red+"]" {
		t.Fatalf("without plugins it asks for %s: %v", without.Annotations[NetworksAnnotation], err)
	}
	pod, err := render(bound("default", "here"), bound("red", "theirs"), bound("more", "here"), gone)
	if err != nil {
		t.Fatal(err)
	}
	want := "[" + red + `,{"name":"tapper","namespace":"lab","cni-args":{"logicNetworkName":"default"}},{"name":"bridger","namespace":"nets","cni-args":{"logicNetworkName":"red"}},` +
		`{"name":"tapper","namespace":"lab","cni-args":{"logicNetworkName":"more"}}]`
	if asks, made := pod.Annotations[NetworksAnnotation], pod.Annotations[MadeWithAnnotation]; asks != want || made != want {
		t.Errorf("it asks for\n%s, and was made with\n%s, want\n%s", asks, made, want)
	}
	if more := memory(pod) - memory(without); more != 107 {
		t.Errorf("the bindings add %d MiB", more)
	}
	if pod, err = render(bound("default", "plain"), bound("red", "plain"), gone); err != nil || pod.Annotations[NetworksAnnotation] != "["+red+"]" || memory(pod)-memory(without) != 7 {
		t.Errorf("with an interface that goes it asks for %s, and for %d MiB more: %v", pod.Annotations[NetworksAnnotation], memory(pod)-memory(without), err)
	}
	if pod, err := render(bound("default", "none")); err == nil || !strings.Contains(err.Error(), `spec.domain.devices.interfaces[0].binding.name: there is no network binding "none"`) {
		t.Errorf("it is rendered: %v, %v", pod, err)
	}
}
