package hostdevice

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// MaxPermitted bounds the entries of a list of permitted devices.
const MaxPermitted = 256

// maxNamed bounds the permitted resources that a refusal lists.
const maxNamed = 16

// Resource is a permitted resource of PCI devices.
type Resource struct {
	Name string
	// Selectors are vendor and device in lower case, such as 10de:1eb8.
	Selectors []string
	// External means that another device plugin offers it.
	External bool
}

// Permitted are the permitted resources, sorted by their names.
type Permitted []Resource

var selector = regexp.MustCompile(`^[0-9a-fA-F]{4}:[0-9a-fA-F]{4}$`)

// CheckSelector returns why a text is no vendor and device, "" if it is.
func CheckSelector(text string) string {
	if !selector.MatchString(text) {
		return "must be the vendor and the device as lspci -n shows them, such as 10de:1eb8"
	}
	return ""
}

// own are the resources by which launcher pods get /dev/kvm and the like.
var own = []string{layout.ResourceKVM, layout.ResourceTUN, layout.ResourceVhostNet}

// CheckResource returns why a name can't be that of a device plugin's resource, "" if it can.
func CheckResource(name string) string {
	domain, _, found := strings.Cut(name, "/")
	switch {
	case !found:
		return "must be a name with a domain, such as example.com/gpu"
	case slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(of string) bool {
		return strings.EqualFold(domain, of) || strings.HasSuffix(strings.ToLower(domain), "."+of)
	}):
		return "names of that domain are not for device plugins"
	case strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix):
		return "no resource begins like that"
	case slices.Contains(own, name):
		return "is Drydock's own"
	}
	// A quota counts the resource under this name.
	if errs := validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix + name); len(errs) > 0 {
		return errs[0]
	}
	return ""
}

// Read returns the permitted PCI devices, without those that admission refuses: the object may be older than admission's
// rules. Several entries may have one resource.
func Read(p *v1.PermittedHostDevices) Permitted {
	if p == nil || len(p.PciHostDevices) > MaxPermitted {
		return nil
	}
	var list Permitted
	for _, d := range p.PciHostDevices {
		if CheckSelector(d.PCIVendorSelector) != "" || CheckResource(d.ResourceName) != "" {
			continue
		}
		at := slices.IndexFunc(list, func(r Resource) bool { return r.Name == d.ResourceName })
		if at < 0 {
			list, at = append(list, Resource{Name: d.ResourceName}), len(list)
		}
		list[at].Selectors = append(list[at].Selectors, strings.ToLower(d.PCIVendorSelector))
		// Two plugins of one resource would take turns at the kubelet.
		list[at].External = list[at].External || d.ExternalResourceProvider
	}
	list = withoutDoubles(list)
	slices.SortFunc(list, func(a, b Resource) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// withoutDoubles leaves devices to the first of the resources that virt-handler offers: the kubelet would give one that has
// two resources to two pods.
func withoutDoubles(list Permitted) Permitted {
	of := map[string]string{}
	for i, r := range list {
		if r.External {
			continue
		}
		list[i].Selectors = slices.DeleteFunc(r.Selectors, func(kind string) bool {
			if of[kind] == "" {
				of[kind] = r.Name
			}
			return of[kind] != r.Name
		})
	}
	return slices.DeleteFunc(list, func(r Resource) bool { return len(r.Selectors) == 0 })
}

// Refusal returns why a spec's device is not permitted, "" if it is. Clients search for KubeVirt's words in it.
func (p Permitted) Refusal(d Device) string {
	if slices.ContainsFunc(p, func(r Resource) bool { return r.Name == d.Resource }) {
		return ""
	}
	names := "no PCI device"
	for i, r := range p {
		switch {
		case i == 0:
			names = r.Name
		case i < maxNamed:
			names += ", " + r.Name
		case i == maxNamed:
			names += fmt.Sprintf(" and %d more", len(p)-i)
		}
	}
	return fmt.Sprintf("%s %s is not permitted in permittedHostDevices configuration of the KubeVirt object, which permits %s in pciHostDevices", d.kind, d.Resource, names)
}

// Local returns the resources that virt-handler offers.
func (p Permitted) Local() Permitted {
	return slices.DeleteFunc(slices.Clone(p), func(r Resource) bool { return r.External })
}
