package rollout

import (
	"fmt"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
)

// Reasons why changes of interfaces wait for a restart. Each ends a sentence that begins with "because".
const (
	ReasonPodNIC     = "the interface on the pods' network is there as long as the launcher pod"
	ReasonNICOrder   = "other interfaces would get other PCI addresses: add interfaces at the end, and have those that are to go be absent"
	ReasonNICNetwork = "only interfaces that are connected by bridge or sriov to a multus network are plugged"
	ReasonNICModel   = "only interfaces of the model virtio are plugged"
	ReasonNICPlace   = "an interface that is plugged cannot choose its PCI address, its ACPI index or its place in the boot order"
	ReasonNICPorts   = "the machine has no PCI port for it"
	ReasonNICFixed   = "disableHotplug is set"
)

// ReasonNetwork is for a change that needs a migration.
const ReasonNetwork = "the guest is migrated to a pod that has the interface on that network"

type nics struct {
	// interfaces and networks are the VMI's future ones.
	interfaces []v1.Interface
	networks   []v1.Network
	changes    []Change
	// apart has the names of the interfaces that only the VMI or only the template has.
	apart          map[string]bool
	wanted         []v1.Interface
	wantedNetworks []v1.Network
}

// planNICs compares a VMI's interfaces with its VM's template. why is the reason why the VMI does not follow it now.
//
// An interface's index determines its PCI address: interfaces are added and removed only at the end of the list, and
// an absent one keeps its place.
func planNICs(running, template *v1.VirtualMachineInstanceSpec, why string) *nics {
	n := &nics{interfaces: slices.Clone(running.Domain.Devices.Interfaces), networks: slices.Clone(running.Networks), apart: map[string]bool{}}
	n.wanted, n.wantedNetworks = wanted(running, template)
	n.switchStates(why)
	n.switchNetworks(why)
	aligned := n.aligned()
	for i := len(n.interfaces) - 1; i >= 0; i-- {
		if name := n.interfaces[i].Name; index(n.wanted, name) < 0 {
			n.remove(name, why, aligned)
		}
	}
	blocked := why
	for i := range n.wanted {
		if iface := &n.wanted[i]; index(running.Domain.Devices.Interfaces, iface.Name) < 0 {
			blocked = n.add(iface, running, blocked, aligned)
		}
	}
	return n
}

// A template without interfaces and networks implies the default ones of the VMI.
func wanted(running, template *v1.VirtualMachineInstanceSpec) (interfaces []v1.Interface, networks []v1.Network) {
	if len(template.Domain.Devices.Interfaces)+len(template.Networks) > 0 {
		return template.Domain.Devices.Interfaces, template.Networks
	}
	for _, network := range running.Networks {
		if network.Multus == nil {
			networks = append(networks, network)
		}
	}
	for _, iface := range running.Domain.Devices.Interfaces {
		if of := networkOf(networks, iface.Name); of != nil {
			interfaces = append(interfaces, iface)
		}
	}
	return interfaces, networks
}

func (n *nics) aligned() bool {
	for i := range min(len(n.interfaces), len(n.wanted)) {
		if n.interfaces[i].Name != n.wanted[i].Name {
			return false
		}
	}
	return true
}

// switchStates applies the template's state (present or absent, link up or down) to common interfaces.
func (n *nics) switchStates(why string) {
	for i := range n.interfaces {
		is := &n.interfaces[i]
		at := index(n.wanted, is.Name)
		if at < 0 || state(is) == state(&n.wanted[at]) {
			continue
		}
		to := n.wanted[at].State
		change := Change{Path: interfacePath(is.Name) + ".state", Way: Live, Reason: ReasonLink}
		if is.State == v1.InterfaceStateAbsent || to == v1.InterfaceStateAbsent {
			change.Reason = ReasonNIC
		}
		switch {
		case why != "":
			change.Way, change.Reason = Restart, why
		case change.Reason == ReasonNIC && !n.onMultus(is.Name):
			change.Way, change.Reason = Restart, ReasonPodNIC
		case change.Reason == ReasonNIC && is.Binding != nil:
			change.Way, change.Reason = Restart, ReasonNICNetwork
		default:
			is.State = to
		}
		n.changes = append(n.changes, change)
	}
}

// switchNetworks applies the template's Multus networks to common networks. An absent interface is on no network in
// the pod.
func (n *nics) switchNetworks(why string) {
	for i := range n.networks {
		is := &n.networks[i]
		to := networkOf(n.wantedNetworks, is.Name)
		if to == nil || is.Multus == nil || to.Multus == nil || is.Multus.NetworkName == to.Multus.NetworkName {
			continue
		}
		change := Change{Path: networkPath(is.Name) + ".multus.networkName", Way: Migration, Reason: ReasonNetwork}
		switch at := index(n.wanted, is.Name); {
		case why != "":
			change.Way, change.Reason = Restart, why
		case at >= 0 && n.wanted[at].State == v1.InterfaceStateAbsent:
			change.Way, change.Reason = Live, ReasonNIC
		}
		if change.Way != Restart {
			next := *is.Multus
			next.NetworkName = to.Multus.NetworkName
			is.Multus = &next
		}
		n.changes = append(n.changes, change)
	}
}

func (n *nics) remove(name, why string, aligned bool) {
	at := index(n.interfaces, name)
	switch {
	case why != "":
	case !n.onMultus(name):
		why = ReasonPodNIC
	case !aligned || at != len(n.interfaces)-1:
		why = ReasonNICOrder
	}
	n.recordChange(name, why)
	if why == "" {
		n.interfaces = n.interfaces[:at]
		n.networks = slices.DeleteFunc(n.networks, func(network v1.Network) bool { return network.Name == name })
	}
}

// add returns why the next interfaces can't be added: they would get this one's PCI address.
func (n *nics) add(iface *v1.Interface, running *v1.VirtualMachineInstanceSpec, blocked string, aligned bool) string {
	why, network := blocked, networkOf(n.wantedNetworks, iface.Name)
	switch {
	case why != "":
	case !aligned:
		why = ReasonNICOrder
	case network == nil, network.Multus == nil, iface.Bridge == nil && iface.SRIOV == nil:
		why = ReasonNICNetwork
	case running.Domain.Devices.DisableHotplug:
		why = ReasonNICFixed
	case iface.Model != "" && iface.Model != v1.VirtIO:
		why = ReasonNICModel
	case iface.PciAddress != "" || iface.ACPIIndex != 0 || iface.BootOrder != nil:
		why = ReasonNICPlace
	case !machine.HasNICPort(running, len(n.interfaces)):
		why = ReasonNICPorts
	}
	n.recordChange(iface.Name, why)
	if why == "" {
		n.interfaces = append(n.interfaces, *iface)
		n.networks = append(n.networks, *network)
		return ""
	}
	if blocked == "" {
		return ReasonNICOrder
	}
	return blocked
}

func (n *nics) recordChange(name, why string) {
	way, reason := Live, ReasonNIC
	if why != "" {
		way, reason = Restart, why
	}
	n.apart[name] = true
	n.changes = append(n.changes, Change{Path: interfacePath(name), Way: way, Reason: reason},
		Change{Path: networkPath(name), Way: way, Reason: reason})
}

func (n *nics) onMultus(name string) bool {
	of := networkOf(n.networks, name)
	return of != nil && of.Multus != nil
}

// level reduces two templates to the interfaces that VMI and template share. An interface that was added after the VMI's
// start counts as the VMI has it.
func (n *nics) level(started, template, running *v1.VirtualMachineInstanceSpec) {
	was, wasOn := started.Domain.Devices.Interfaces, started.Networks
	started.Domain.Devices.Interfaces, started.Networks = nil, nil
	for _, iface := range running.Domain.Devices.Interfaces {
		if n.apart[iface.Name] {
			continue
		}
		if at := index(was, iface.Name); at >= 0 {
			iface = was[at]
		}
		iface.State = ""
		started.Domain.Devices.Interfaces = append(started.Domain.Devices.Interfaces, iface)
	}
	for _, network := range running.Networks {
		if n.apart[network.Name] {
			continue
		}
		if of := networkOf(wasOn, network.Name); of != nil {
			network = *of
		}
		started.Networks = append(started.Networks, unnamed(network))
	}
	template.Domain.Devices.Interfaces, template.Networks = nil, nil
	for _, iface := range n.wanted {
		if iface.State = ""; !n.apart[iface.Name] {
			template.Domain.Devices.Interfaces = append(template.Domain.Devices.Interfaces, iface)
		}
	}
	for _, network := range n.wantedNetworks {
		if !n.apart[network.Name] {
			template.Networks = append(template.Networks, unnamed(network))
		}
	}
	// The order of networks is meaningless.
	byName := func(a, b v1.Network) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(started.Networks, byName)
	slices.SortFunc(template.Networks, byName)
}

// A Multus network may change while the guest runs.
func unnamed(network v1.Network) v1.Network {
	if network.Multus != nil {
		of := *network.Multus
		of.NetworkName = ""
		network.Multus = &of
	}
	return network
}

func networkPath(name string) string { return fmt.Sprintf("%s.networks[%s]", templatePath, name) }

func interfacePath(name string) string {
	return fmt.Sprintf("%s.domain.devices.interfaces[%s]", templatePath, name)
}

func index(interfaces []v1.Interface, name string) int {
	return slices.IndexFunc(interfaces, func(iface v1.Interface) bool { return iface.Name == name })
}

func networkOf(networks []v1.Network, name string) *v1.Network {
	for i := range networks {
		if networks[i].Name == name {
			return &networks[i]
		}
	}
	return nil
}

// Up is the default.
func state(iface *v1.Interface) v1.InterfaceState {
	if iface.State == v1.InterfaceStateLinkUp {
		return ""
	}
	return iface.State
}
