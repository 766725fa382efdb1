package nichotplug

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/backoff"
	"drydock.dev/drydock/internal/rules/launcherpod"
)

const (
	// askPause is after what time a guest is asked again to release an interface.
	askPause = 10 * time.Second
	// plugPause is the least time between two plugs of an interface: a guest may give back what it gets, and a pod may
	// not have what it is said to have.
	plugPause = 10 * time.Second
	// departPatience is how long a guest that is to migrate may take to release what it can't take along.
	departPatience = 3 * askPause
)

// Node is what virt-handler knows of the interfaces on other networks than the pods' of a guest that runs on its
// node, and is not being migrated.
type Node struct {
	VMI *v1.VirtualMachineInstance
	// InPod are the interfaces that the guest's pod is said to have.
	InPod Attached
	// Devices are the devices of the node that the pod has for interfaces that are to be such.
	Devices Devices
	// NICs are those that QEMU has, of whatever network, by the interface's name. Gone are those that it had,
	// and whose backends are left.
	NICs, Gone map[string]bool
	// Loose are those that QEMU has and that virt-handler has not connected to the pod since they were to go, or since
	// it began: the pod may have lost its interface meanwhile, and got another one.
	Loose map[string]bool
	// Asked is when the guest was asked last to release an interface, Since when it was asked first, and Plugged
	// when one was plugged.
	Asked, Since, Plugged map[string]time.Time
	// Unsure means that something may be left in the pod of interfaces that an earlier virt-handler has unplugged.
	Unsure bool
	Now    time.Time
}

// Step is what virt-handler does next about a guest's interfaces. The zero value is nothing.
type Step struct {
	// Plug and Unplug are interfaces that QEMU is to get, and that the guest is to be asked to release, in the
	// order of the specification and of their names. Reconnect are interfaces that QEMU has kept, and that are to be
	// connected to the pod's again.
	Plug, Unplug, Reconnect []string
	// Clear are interfaces whose backends are to be removed from QEMU. Tidy means that of the links in the pod
	// only those of the interfaces in Keep are to stay.
	Clear, Keep []string
	Tidy        bool
	// Kept are interfaces that the guest has not released although it was asked a while ago.
	Kept []string
	// After is when to look again, 0 for not before something changes.
	After time.Duration
}

// Problem is what the guest's owner is to hear, nil for nothing.
func (s *Step) Problem() error {
	if len(s.Kept) == 0 {
		return nil
	}
	return fmt.Errorf("the guest has not released interfaces that are to be unplugged (%s): its system may lack PCI hotplug, or use them",
		strings.Join(s.Kept, ", "))
}

// Any reports whether there is something to be done.
func (s *Step) Any() bool {
	return len(s.Plug)+len(s.Unplug)+len(s.Reconnect)+len(s.Clear) > 0 || s.Tidy
}

// Settled reports whether there is nothing to be done, whatever the pod has: nearly always.
func (n *Node) Settled() bool {
	networks := false
	for i := range n.VMI.Spec.Domain.Devices.Interfaces {
		iface := &n.VMI.Spec.Domain.Devices.Interfaces[i]
		if !OnMultus(n.VMI, iface.Name) {
			continue
		}
		networks = true
		if iface.State != v1.InterfaceStateAbsent && (!n.NICs[iface.Name] || n.Loose[iface.Name]) {
			return false
		}
	}
	return len(n.Gone) == 0 && (!networks || !n.Unsure) && len(Leaving(n.VMI, n.NICs)) == 0
}

// Next returns what is to be done.
func (n *Node) Next() Step {
	s := Step{Keep: slices.Sorted(maps.Keys(n.NICs))}
	wanted := map[string]bool{}
	for i := range n.VMI.Spec.Domain.Devices.Interfaces {
		iface := &n.VMI.Spec.Domain.Devices.Interfaces[i]
		switch {
		case !OnMultus(n.VMI, iface.Name):
			wanted[iface.Name] = true
		case iface.State == v1.InterfaceStateAbsent:
			if n.Unsure && !n.NICs[iface.Name] {
				s.Clear = append(s.Clear, iface.Name)
			}
		default:
			wanted[iface.Name] = true
			n.plug(&s, iface)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.NICs)) {
		if !wanted[name] {
			n.release(&s, name, askPause)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.Gone)) {
		if !slices.Contains(s.Clear, name) {
			s.Clear = append(s.Clear, name)
		}
	}
	s.Tidy = n.Unsure || len(n.Gone) > 0
	return s
}

// Depart returns what is to be done before the guest leaves the node: it can't take devices of the node along. They
// are plugged again where the guest is when its migration has ended, one way or the other.
func (n *Node) Depart() Step {
	var s Step
	for _, name := range DevicesOf(n.VMI, n.NICs) {
		n.release(&s, name, departPatience)
	}
	return s
}

// DevicesOf are the interfaces that are devices of the node, of those that QEMU has.
func DevicesOf(vmi *v1.VirtualMachineInstance, nics map[string]bool) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(nics)) {
		if iface := launcherpod.InterfaceOf(vmi, name); iface != nil && iface.SRIOV != nil {
			list = append(list, name)
		}
	}
	return list
}

// release plans to ask the guest to release an interface, again and again. One that it has not released within its
// patience is kept.
func (n *Node) release(s *Step, name string, patience time.Duration) {
	if _, asked := n.Since[name]; asked && pause(n.Since, name, patience, n.Now) == 0 {
		s.Kept = append(s.Kept, name)
	}
	if left := pause(n.Asked, name, askPause, n.Now); left > 0 {
		s.After = backoff.Sooner(s.After, left)
		return
	}
	s.Unplug = append(s.Unplug, name)
}

// plug plans to plug an interface that is wanted, once the pod has it, or to connect one that QEMU has kept.
func (n *Node) plug(s *Step, iface *v1.Interface) {
	name := iface.Name
	there := n.NICs[name]
	if there && !n.Loose[name] {
		return
	}
	if !there {
		s.Keep = append(s.Keep, name)
	}
	a := AttachmentOf(n.VMI, name)
	if a == nil || !n.InPod.lists(*a) || !there && iface.SRIOV != nil && n.Devices[a.Interface] == "" {
		return
	}
	if left := pause(n.Plugged, name, plugPause, n.Now); left > 0 {
		s.After = backoff.Sooner(s.After, left)
		return
	}
	if there {
		s.Reconnect = append(s.Reconnect, name)
		return
	}
	s.Plug = append(s.Plug, name)
}

// pause is how much of a pause is left since something was done last.
func pause(done map[string]time.Time, name string, length time.Duration, now time.Time) time.Duration {
	at, known := done[name]
	if !known {
		return 0
	}
	return max(at.Add(length).Sub(now), 0)
}

// Leaving are the interfaces, of those that QEMU has, that the VMI does not want any more. The guest takes them to
// no other node.
func Leaving(vmi *v1.VirtualMachineInstance, nics map[string]bool) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(nics)) {
		if iface := launcherpod.InterfaceOf(vmi, name); iface == nil || iface.State == v1.InterfaceStateAbsent {
			list = append(list, name)
		}
	}
	return list
}

// Reported reports whether the VMI's status shows just the NICs that QEMU has on other networks than the pods'. The
// target of a migration goes by the status.
func Reported(vmi *v1.VirtualMachineInstance, nics map[string]bool) bool {
	for i := range vmi.Spec.Networks {
		if name := vmi.Spec.Networks[i].Name; vmi.Spec.Networks[i].Multus != nil && InGuest(vmi, name) != nics[name] {
			return false
		}
	}
	return true
}

// Arriving is the VMI of which the target of a migration starts QEMU: with the interfaces that the status shows in the
// guest, but for devices of the node that it leaves.
func Arriving(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	return WithNICs(vmi, func(name string) bool { return InGuest(vmi, name) && launcherpod.InterfaceOf(vmi, name).SRIOV == nil })
}

// WithNICs is the VMI with all interfaces absent that are on other networks than the pods' and not among those of
// which has says so. What it shares with the VMI must not be changed.
func WithNICs(vmi *v1.VirtualMachineInstance, has func(name string) bool) *v1.VirtualMachineInstance {
	out := *vmi
	out.Spec.Domain.Devices.Interfaces = slices.Clone(vmi.Spec.Domain.Devices.Interfaces)
	for i := range out.Spec.Domain.Devices.Interfaces {
		if iface := &out.Spec.Domain.Devices.Interfaces[i]; OnMultus(vmi, iface.Name) && !has(iface.Name) {
			iface.State = v1.InterfaceStateAbsent
		}
	}
	return &out
}

// OnMultus reports whether an interface of the VMI is on a network of Multus'.
func OnMultus(vmi *v1.VirtualMachineInstance, name string) bool { return networkOf(vmi, name) != nil }

// OnPodNetwork reports whether the VMI has the interface, and on the pods' network: QEMU has it from the start.
func OnPodNetwork(vmi *v1.VirtualMachineInstance, name string) bool {
	return launcherpod.InterfaceOf(vmi, name) != nil && !OnMultus(vmi, name)
}

// IsLinkOf reports whether a link in a launcher pod is the bridge or the tap of one of these interfaces, or of none
// on another network than the pods'.
func IsLinkOf(link string, names []string) bool {
	if !madeLink.MatchString(link) {
		return true
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return link == layout.SecondaryLink("k6t-", name) || link == layout.SecondaryLink("tap", name)
	})
}
