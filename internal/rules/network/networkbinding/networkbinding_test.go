package networkbinding

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

func overhead(requests, limits corev1.ResourceList) *v1.ResourceRequirementsWithoutClaims {
	return &v1.ResourceRequirementsWithoutClaims{Requests: requests, Limits: limits}
}

func amounts(name corev1.ResourceName, amount string) corev1.ResourceList {
	return corev1.ResourceList{name: resource.MustParse(amount)}
}

func TestWhichBindingsAreServed(t *testing.T) {
	ten := resource.MustParse("10Mi")
	for name, c := range map[string]struct {
		plugin v1.InterfaceBindingPlugin
		want   *Binding
		why    string
	}{
		"a tap of the plugin's":   {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: v1.Tap}, want: &Binding{}},
		"a tap of virt-handler's": {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: v1.ManagedTap, Migration: &v1.InterfaceBindingMigration{}}, want: &Binding{Managed: true, Migrates: true}},
		"a plugin in the guest's namespace": {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: v1.Tap, NetworkAttachmentDefinition: "red"},
			want: &Binding{Attachment: "red"}},
		"a plugin in another namespace": {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: v1.Tap, NetworkAttachmentDefinition: "nets/red.blue"},
			want: &Binding{Namespace: "nets", Attachment: "red.blue"}},
		"more memory":     {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: v1.Tap, ComputeResourceOverhead: overhead(amounts("memory", "10Mi"), nil)}, want: &Binding{Memory: &ten}},
		"no more of it":   {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: v1.Tap, ComputeResourceOverhead: overhead(nil, nil)}, want: &Binding{}},
		"nothing":         {why: "domainAttachmentType: must be tap or managedTap"},
		"another type":    {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: "vhost\n"}, why: `domainAttachmentType: "vhost\n" is neither tap nor managedTap`},
		"a sidecar":       {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: v1.Tap, SidecarImage: "x"}, why: "sidecarImage: Drydock runs no sidecars: QEMU's arguments are its own; a binding is served by a network plugin, with domainAttachmentType tap or managedTap"},
		"a sidecar alone": {plugin: v1.InterfaceBindingPlugin{SidecarImage: "x"}, why: "sidecarImage: Drydock runs no sidecars: QEMU's arguments are its own; a binding is served by a network plugin, with domainAttachmentType tap or managedTap"},
		"facts for a sidecar": {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: v1.Tap, DownwardAPI: v1.DeviceInfo},
			why: "downwardAPI: is for sidecars, which Drydock does not run"},
		"a way to migrate": {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: v1.Tap, Migration: &v1.InterfaceBindingMigration{Method: v1.LinkRefresh}},
			why: "migration.method: not supported by Drydock: a guest that migrates keeps its link; leave the method out"},
		"a limit": {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: v1.Tap, ComputeResourceOverhead: overhead(nil, amounts("memory", "1Mi"))},
			why: "computeResourceOverhead.limits: not supported by Drydock: requests of memory are"},
		"more CPU": {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: v1.Tap, ComputeResourceOverhead: overhead(amounts("cpu", "1"), nil)},
			why: `computeResourceOverhead.requests: "cpu" is not supported by Drydock: requests of memory are`},
		"less memory": {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: v1.Tap, ComputeResourceOverhead: overhead(amounts("memory", "-1"), nil)},
			why: "computeResourceOverhead.requests: must not be negative"},
		"no more memory": {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: v1.Tap, ComputeResourceOverhead: overhead(amounts("memory", "0"), nil)}, want: &Binding{Memory: &resource.Quantity{}}},
		"a strange plugin": {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: v1.Tap, NetworkAttachmentDefinition: "a/b/c"},
			why: "networkAttachmentDefinition: must be the name of a NetworkAttachmentDefinition, as in red or namespace/red: a lowercase RFC 1123 subdomain"},
		"a plugin nowhere": {plugin: v1.InterfaceBindingPlugin{DomainAttachmentType: v1.Tap, NetworkAttachmentDefinition: "/red"},
			why: "networkAttachmentDefinition: must be the name of a NetworkAttachmentDefinition, as in red or namespace/red: a lowercase RFC 1123 label"},
	} {
		t.Run(name, func(t *testing.T) {
			iface := &v1.Interface{InterfaceBindingMethod: v1.InterfaceBindingMethod{}, Binding: &v1.PluginBinding{Name: "mine"}}
			got, err := Registered{"mine": c.plugin}.Of(iface)
			if c.why != "" {
				if want := "network binding mine of the KubeVirt object: " + c.why; err == nil || !strings.HasPrefix(err.Error(), want) || got != nil {
					t.Errorf("got %+v, %v\nwant %s", got, err, want)
				}
				if Check(&c.plugin) == nil {
					t.Error("it is registered")
				}
				return
			}
			if err != nil || Check(&c.plugin) != nil {
				t.Fatal(err)
			}
			if c.want.Memory != nil {
				if got.Memory == nil || got.Memory.Cmp(*c.want.Memory) != 0 {
					t.Errorf("it needs %v of memory", got.Memory)
				}
				got.Memory, c.want.Memory = nil, nil
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestABindingThatNobodyHasRegistered(t *testing.T) {
	if got, err := (Registered{"a": {}}).Of(&v1.Interface{}); got != nil || err != nil {
		t.Errorf("an interface without a binding has %v, %v", got, err)
	}
	of := func(r Registered, name string) string {
		_, err := r.Of(&v1.Interface{Binding: &v1.PluginBinding{Name: name}})
		if err == nil {
			t.Fatal("there is one")
		}
		return err.Error()
	}
	if got := of(nil, "x"); got != `there is no network binding "x" in the KubeVirt object's spec.configuration.network.binding, which has none` {
		t.Error(got)
	}
	if got := of(Registered{"b": {}, "a": {}}, ""); got != `there is no network binding "" in the KubeVirt object's spec.configuration.network.binding, which has a, b` {
		t.Error(got)
	}
	many := Registered{}
	for i := range Max {
		many[fmt.Sprintf("n%03d", i)] = v1.InterfaceBindingPlugin{}
	}
	if got := of(many, strings.Repeat("x", 5000)); strings.Contains(got, "…") || strings.Count(got, "n0") != Max || strings.Count(got, "x") > maxName+5 {
		t.Error(got)
	}
	many["z"] = v1.InterfaceBindingPlugin{}
	if got := of(many, "x"); !strings.HasSuffix(got, "n063, …") {
		t.Error(got)
	}
}
