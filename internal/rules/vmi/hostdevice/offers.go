package hostdevice

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Driver is the driver of devices that can be passed to guests.
const Driver = "vfio-pci"

// bridge is the class of PCI bridges, which VFIO tolerates in a group whatever their driver is.
const bridge = "0x06"

// Found is a PCI device of the node.
type Found struct {
	Address string
	// Kind is vendor and device, in the form of Resource.Selectors.
	Kind string
	// Class is as in sysfs.
	Class string
	// Driver is "" without one.
	Driver string
	// Group is the number of its IOMMU group, "" without one.
	Group string
	// NUMA is the number of its NUMA node, negative if unknown.
	NUMA int64
	// Node means that /dev/vfio has the group's device node.
	Node bool
}

// Offer is a device for the kubelet.
type Offer struct {
	Address, Group string
	NUMA           int64
	// Ill is why no pod may get it now, "" if one may.
	Ill string
}

// Offers returns the devices of each resource that virt-handler offers, sorted by address. before is the previous result:
// a device that was offered remains.
func Offers(local Permitted, found []Found, before map[string][]Offer) map[string][]Offer {
	found = slices.SortedFunc(slices.Values(found), func(a, b Found) int { return cmp.Compare(a.Address, b.Address) })
	all := map[string][]Offer{}
	for _, resource := range local {
		offers := offered(resource, found, before[resource.Name])
		for _, was := range before[resource.Name] {
			if !slices.ContainsFunc(offers, func(o Offer) bool { return o.Address == was.Address || o.Group == was.Group }) {
				was.Ill = lost(was, found)
				offers = append(offers, was)
			}
		}
		slices.SortFunc(offers, func(a, b Offer) int { return cmp.Compare(a.Address, b.Address) })
		if len(offers) > 0 {
			all[resource.Name] = offers
		}
	}
	return all
}

// offered has one device of each group: a guest may have the group by the device that was offered before.
func offered(resource Resource, found []Found, before []Offer) []Offer {
	var offers []Offer
	for _, f := range found {
		if !slices.Contains(resource.Selectors, f.Kind) || f.Driver != Driver || f.Group == "" || !f.Node {
			continue
		}
		offer := Offer{Address: f.Address, Group: f.Group, NUMA: f.NUMA, Ill: groupHeldBy(f, found)}
		at := slices.IndexFunc(offers, func(o Offer) bool { return o.Group == f.Group })
		switch {
		case at < 0:
			offers = append(offers, offer)
		case slices.ContainsFunc(before, func(was Offer) bool { return was.Address == f.Address }):
			offers[at] = offer
		}
	}
	return offers
}

// groupHeldBy returns which other device keeps the group of f from being opened.
func groupHeldBy(f Found, found []Found) string {
	for _, other := range found {
		if other.Group != f.Group || other.Driver == "" || strings.HasPrefix(other.Class, bridge) {
			continue
		}
		if !strings.HasPrefix(other.Driver, "vfio") && other.Driver != "pci-stub" {
			return fmt.Sprintf("%s, in the same IOMMU group %s, has the driver %s", other.Address, f.Group, other.Driver)
		}
	}
	return ""
}

func lost(was Offer, found []Found) string {
	at := slices.IndexFunc(found, func(f Found) bool { return f.Address == was.Address })
	switch {
	case at < 0:
		return "the device is gone"
	case found[at].Driver == "":
		return "the device has no driver"
	case found[at].Driver != Driver:
		return "the device has the driver " + found[at].Driver
	case found[at].Group == "" || !found[at].Node:
		return "/dev/vfio has no device of its group"
	}
	return "the device is not one of this resource any more"
}
