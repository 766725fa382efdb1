// Package networkbinding decides how an interface is connected by a binding that the KubeVirt object
// registers (configuration.network.binding), and which bindings are supported.
//
//	domainAttachmentType   QEMU's tap is created by                 and connected to the pod's interface by
//	tap                    the network's or the binding's plugin    that plugin
//	managedTap             virt-handler                             virt-handler, by a bridge, without DHCP
//
// The binding's optional networkAttachmentDefinition names a plugin that Multus calls after the network's own, with
// the interface's name. A binding with a sidecar is not supported: virt-launcher runs no foreign programs, and QEMU's
// arguments are Drydock's (decision 402). The package must not import a client.
package networkbinding

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
)

// Registered are the KubeVirt object's bindings by name.
type Registered map[string]v1.InterfaceBindingPlugin

const (
	// Max bounds the registered bindings.
	Max     = 64
	maxName = 63 // characters of an unknown name that an error repeats
	path    = "spec.configuration.network.binding"
)

// Binding is a supported binding.
type Binding struct {
	Managed bool // virt-handler creates the tap; otherwise a network plugin does
	// Namespace and Attachment name the binding's NetworkAttachmentDefinition, "" for none. Without a namespace
	// it is in the guest's.
	Namespace, Attachment string
	Migrates              bool
	Memory                *resource.Quantity // more for the launcher pod, nil for none
}

// Of returns an interface's binding, nil for none.
func (r Registered) Of(iface *v1.Interface) (*Binding, error) {
	if iface.Binding == nil {
		return nil, nil
	}
	name := iface.Binding.Name
	plugin, there := r[name]
	if !there {
		return nil, fmt.Errorf("there is no network binding %.*q in the KubeVirt object's %s, which has %s", maxName, name, path, r.names())
	}
	if problem := Check(&plugin); problem != nil {
		return nil, fmt.Errorf("network binding %s of the KubeVirt object: %w", name, problem)
	}
	b := &Binding{Managed: plugin.DomainAttachmentType == v1.ManagedTap, Migrates: plugin.Migration != nil}
	b.Namespace, b.Attachment = split(plugin.NetworkAttachmentDefinition)
	if o := plugin.ComputeResourceOverhead; o != nil {
		if memory, some := o.Requests[corev1.ResourceMemory]; some {
			b.Memory = &memory
		}
	}
	return b, nil
}

func (r Registered) names() string {
	if len(r) == 0 {
		return "none"
	}
	names := slices.Sorted(maps.Keys(r))
	if len(names) > Max {
		names = append(names[:Max], "…")
	}
	return strings.Join(names, ", ")
}

// Problem is why a binding is not supported.
type Problem struct {
	Field []string // the path below the binding
	Text  string
}

func (p *Problem) Error() string { return strings.Join(p.Field, ".") + ": " + p.Text }

// Check returns why a binding is not supported, nil if it is.
func Check(plugin *v1.InterfaceBindingPlugin) error {
	if p := check(plugin); p != nil {
		return p
	}
	return nil
}

func check(plugin *v1.InterfaceBindingPlugin) *Problem {
	problem := func(text string, field ...string) *Problem { return &Problem{field, text} }
	switch {
	case plugin.SidecarImage != "":
		return problem("Drydock runs no sidecars: QEMU's arguments are its own; a binding is served by a network plugin, with domainAttachmentType tap or managedTap", "sidecarImage")
	case plugin.DownwardAPI != "":
		return problem("is for sidecars, which Drydock does not run", "downwardAPI")
	case plugin.DomainAttachmentType == "":
		return problem("must be tap or managedTap", "domainAttachmentType")
	case plugin.DomainAttachmentType != v1.Tap && plugin.DomainAttachmentType != v1.ManagedTap:
		return problem(fmt.Sprintf("%.*q is neither tap nor managedTap", maxName, plugin.DomainAttachmentType), "domainAttachmentType")
	case plugin.Migration != nil && plugin.Migration.Method != "":
		return problem("not supported by Drydock: a guest that migrates keeps its link; leave the method out", "migration", "method")
	}
	if p := checkOverhead(plugin.ComputeResourceOverhead); p != nil {
		return p
	}
	return checkAttachment(plugin.NetworkAttachmentDefinition)
}

// As in KubeVirt, only memory requests are accepted.
func checkOverhead(o *v1.ResourceRequirementsWithoutClaims) *Problem {
	const at = "computeResourceOverhead"
	if o == nil {
		return nil
	}
	if len(o.Limits) > 0 {
		return &Problem{[]string{at, "limits"}, "not supported by Drydock: requests of memory are"}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Requests)) {
		if name != corev1.ResourceMemory {
			return &Problem{[]string{at, "requests"}, fmt.Sprintf("%.*q is not supported by Drydock: requests of memory are", maxName, name)}
		}
		if q := o.Requests[name]; q.Sign() < 0 {
			return &Problem{[]string{at, "requests"}, "must not be negative"}
		}
	}
	return nil
}

func checkAttachment(text string) *Problem {
	if text == "" {
		return nil
	}
	namespace, name := split(text)
	errs := validation.IsDNS1123Subdomain(name)
	if strings.Contains(text, "/") {
		errs = append(errs, validation.IsDNS1123Label(namespace)...)
	}
	if len(errs) == 0 {
		return nil
	}
	return &Problem{[]string{"networkAttachmentDefinition"}, "must be the name of a NetworkAttachmentDefinition, as in red or namespace/red: " + errs[0]}
}

// The namespace is optional.
func split(text string) (namespace, name string) {
	namespace, name, found := strings.Cut(text, "/")
	if !found {
		return "", text
	}
	return namespace, name
}
