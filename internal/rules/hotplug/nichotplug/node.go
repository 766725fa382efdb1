package nichotplug

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

const (
	askPause = 10 * time.Second
	// plugPause is the time before an interface is plugged again: the guest may release it, and the pod's report may be
	// wrong.
	plugPause      = 10 * time.Second
	departPatience = 3 * askPause // for a migrating guest to release devices that can't migrate
)

// Node has the secondary interfaces of a guest that runs on the node and does not migrate.
type Node struct {
	VMI     *v1.VirtualMachineInstance
	InPod   Attached
	Devices Devices
	// NICs are QEMU's, of any network, by interface name. Of Gone, only the backends are left.
	NICs, Gone map[string]bool
	// Unconnected are NICs that virt-handler has not connected since its start or since they were unwanted: the pod's
	// interface may have been replaced.
	Unconnected map[string]bool
	// Asked is the time of the last request to release an interface, Since of the first, Plugged of the last plug.
	Asked, Since, Plugged map[string]time.Time
	Unsure                bool // an earlier virt-handler may have left remains in the pod
	Now                   time.Time
}

// Step is virt-handler's next step. The zero value is none.
type Step struct {
	// Plug and Reconnect are in the order of the spec, Unplug is sorted.
	Plug, Unplug, Reconnect []string
	// Clear has the interfaces whose backends must be removed. RemoveLeftovers removes all links from the pod except those
	// of Keep.
	Clear, Keep     []string
	RemoveLeftovers bool
	Kept            []string // not released in time
	After           time.Duration
}

// Problem returns an error for the guest's owner.
func (s *Step) Problem() error {
	if len(s.Kept) == 0 {
		return nil
	}
	return fmt.Errorf("the guest has not released interfaces that are to be unplugged (%s): its system may lack PCI hotplug, or use them",
		strings.Join(s.Kept, ", "))
}

// Any reports whether there is something to do.
func (s *Step) Any() bool {
	return len(s.Plug)+len(s.Unplug)+len(s.Reconnect)+len(s.Clear) > 0 || s.RemoveLeftovers
}

// Settled reports whether there is nothing to do, whatever the pod has.
func (n *Node) Settled() bool {
	networks := false
	for i := range n.VMI.Spec.Domain.Devices.Interfaces {
		iface := &n.VMI.Spec.Domain.Devices.Interfaces[i]
		if !OnMultus(n.VMI, iface.Name) {
			continue
		}
		networks = true
		if iface.State != v1.InterfaceStateAbsent && (!n.NICs[iface.Name] || n.Unconnected[iface.Name]) {
			return false
		}
	}
	return len(n.Gone) == 0 && (!networks || !n.Unsure) && len(Leaving(n.VMI, n.NICs)) == 0
}

// Next returns the next step.
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
	s.RemoveLeftovers = n.Unsure || len(n.Gone) > 0
	return s
}

// Depart returns the step before a migration, which can't take devices of the node along. Next plugs them again.
func (n *Node) Depart() Step {
	var s Step
	for _, name := range DevicesOf(n.VMI, n.NICs) {
		n.release(&s, name, departPatience)
	}
	return s
}

// Departure reports whether a migration must wait: the guest must release the node's devices and unwanted interfaces, and
// the target starts QEMU with those in the VMI's status. refusal is why the guest can't be sent, "" if it can. kept is
// Depart's Kept.
func (n *Node) Departure(kept []string) (unsettled bool, refusal string) {
	leaving := Leaving(n.VMI, n.NICs)
	switch {
	case len(kept) > 0:
		refusal = fmt.Sprintf("the guest has not released devices of its node, which it can't take along (%s): its system may lack PCI hotplug, or use them",
			strings.Join(kept, ", "))
	case len(leaving) > 0:
		refusal = fmt.Sprintf("the guest has not released interfaces that are to be unplugged (%s): it can be migrated when it has, or was restarted",
			strings.Join(leaving, ", "))
	}
	return len(leaving)+len(DevicesOf(n.VMI, n.NICs)) > 0 || !Reported(n.VMI, n.NICs), refusal
}

// DevicesOf returns the NICs that are devices of the node.
func DevicesOf(vmi *v1.VirtualMachineInstance, nics map[string]bool) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(nics)) {
		if iface := launcherpod.InterfaceOf(vmi, name); iface != nil && iface.SRIOV != nil {
			list = append(list, name)
		}
	}
	return list
}

// release plans a repeated request to the guest.
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

func (n *Node) plug(s *Step, iface *v1.Interface) {
	name := iface.Name
	there := n.NICs[name]
	if there && !n.Unconnected[name] {
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

func pause(done map[string]time.Time, name string, length time.Duration, now time.Time) time.Duration {
	at, known := done[name]
	if !known {
		return 0
	}
	return max(at.Add(length).Sub(now), 0)
}

// Leaving returns the NICs that the VMI does not want any more.
func Leaving(vmi *v1.VirtualMachineInstance, nics map[string]bool) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(nics)) {
		if iface := launcherpod.InterfaceOf(vmi, name); iface == nil || iface.State == v1.InterfaceStateAbsent {
			list = append(list, name)
		}
	}
	return list
}

// Reported reports whether the status shows exactly QEMU's secondary NICs. A migration's target relies on it.
func Reported(vmi *v1.VirtualMachineInstance, nics map[string]bool) bool {
	for i := range vmi.Spec.Networks {
		if name := vmi.Spec.Networks[i].Name; vmi.Spec.Networks[i].Multus != nil && InGuest(vmi, name) != nics[name] {
			return false
		}
	}
	return true
}

// Arriving returns the VMI for the target's QEMU, with the interfaces in the guest except devices of the node.
func Arriving(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	return WithNICs(vmi, func(name string) bool { return InGuest(vmi, name) && launcherpod.InterfaceOf(vmi, name).SRIOV == nil })
}

// WithNICs returns the VMI with all secondary interfaces absent for which has is false. It shares data with vmi: do not
// change it.
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

// OnMultus reports whether an interface is on a Multus network.
func OnMultus(vmi *v1.VirtualMachineInstance, name string) bool { return networkOf(vmi, name) != nil }

// OnPodNetwork reports whether the VMI has the interface on the pod network.
func OnPodNetwork(vmi *v1.VirtualMachineInstance, name string) bool {
	return launcherpod.InterfaceOf(vmi, name) != nil && !OnMultus(vmi, name)
}

// IsLinkOf reports whether a link in a launcher pod is a bridge or tap of these interfaces, or is not
// virt-handler's for secondary interfaces.
func IsLinkOf(link string, names []string) bool {
	if !madeLink.MatchString(link) {
		return true
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return link == layout.SecondaryLink("k6t-", name) || link == layout.SecondaryLink("tap", name)
	})
}
