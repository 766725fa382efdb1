package launcherpod

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
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
			provisioning, err := RenderProvisioning(vmi, emulated, "launcher")
			if err != nil {
				t.Fatal(err)
			}
			if value := provisioning.Annotations[NetworksAnnotation]; value != "" {
				t.Errorf("a provisioning pod asks for %s", value)
			}
		})
	}
}
