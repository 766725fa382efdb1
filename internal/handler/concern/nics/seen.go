package nics

import (
	"maps"
	"slices"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// Seen is the state of the guest's interfaces. Its maps and lists are not modified.
type Seen struct {
	inquiry concern.Inquiry
	// QEMU has the interfaces in present, and only the backends of those in gone.
	present, gone map[string]bool
	// asked is when the guest was last asked to release an interface, since when it first was; plugged includes
	// reconnections.
	asked, since, plugged map[string]time.Time
	connected             []network.Interface
	devices               nichotplug.Devices // read only while something is left to do
	checkedPod            string             // the pod's version at the last check of its interfaces
	// tidied means that the pod has no leftovers of interfaces that an earlier virt-handler has unplugged.
	tidied bool
}

func with[V any](m map[string]V, name string, value V) map[string]V {
	next := maps.Clone(m)
	if next == nil {
		next = map[string]V{}
	}
	next[name] = value
	return next
}

func without[V any](m map[string]V, names ...string) map[string]V {
	next := maps.Clone(m)
	for _, name := range names {
		delete(next, name)
	}
	return next
}

func (s Seen) withPresent(present map[string]bool) Seen {
	for name := range s.present {
		if !present[name] {
			s.gone = with(s.gone, name, true)
			s.asked, s.since = without(s.asked, name), without(s.since, name)
		}
	}
	s.present = present
	return s
}

func (s Seen) disconnected(names []string) Seen {
	s.connected = slices.DeleteFunc(slices.Clone(s.connected), func(i network.Interface) bool { return slices.Contains(names, i.Name) })
	return s
}

func (s Seen) node(r *concern.Round) *nichotplug.Node {
	unconnected := maps.Clone(s.present)
	for _, i := range s.connected {
		delete(unconnected, i.Name)
	}
	return &nichotplug.Node{
		VMI: r.VMI, InPod: r.InPod, Devices: s.devices, NICs: s.present, Gone: s.gone, Unconnected: unconnected,
		Asked: s.asked, Since: s.since, Plugged: s.plugged, Unsure: !s.tidied, Now: r.Now,
	}
}

// interfaces returns the guest's interfaces for its status: those plugged and not yet released.
func (s Seen) interfaces(vmi *v1.VirtualMachineInstance) []vmihandler.Interface {
	var list []vmihandler.Interface
	listed := map[string]bool{}
	for _, i := range s.connected {
		other := !nichotplug.OnPodNetwork(vmi, i.Name)
		if other && !s.present[i.Name] {
			continue
		}
		listed[i.Name] = true
		list = append(list, vmihandler.Interface{
			Name: i.Name, MAC: i.MAC, PodInterface: i.PodInterface, IPs: i.IPs, Queues: i.Queues,
			Multus: other, Stays: i.Stays,
		})
	}
	for _, was := range vmi.Status.Interfaces {
		if !listed[was.Name] && s.present[was.Name] && nichotplug.InGuest(vmi, was.Name) {
			list = append(list, vmihandler.Interface{
				Name: was.Name, MAC: was.MAC, PodInterface: was.PodInterfaceName, Queues: int(was.QueueCount),
				Link: v1.InterfaceState(was.LinkState), Multus: true,
			})
		}
	}
	return list
}
