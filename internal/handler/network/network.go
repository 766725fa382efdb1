// Package network owns what a guest's network needs inside its launcher pod's
// network namespace: bridge, tap, address translation, and the DHCP server that
// gives the guest its address.
//
// Everything is made from outside the pod, in a namespace that the caller has
// opened, and everything can be found again: Setup on a pod that has been set up
// already changes nothing that the guest could notice and serves DHCP again.
// The package keeps no file and no journal; all state is in the namespace.
// It knows nothing of QEMU, pods or the API server.
package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/networkbinding"
	"drydock.dev/drydock/internal/rules/nichotplug"
)

// Pod is what Setup needs to know of a launcher pod.
type Pod struct {
	// NetNS is the pod's network namespace, open. It stays the caller's, who
	// may close it once Setup has returned.
	NetNS *os.File
	// ResolvConf is the content of the container's /etc/resolv.conf, from
	// which the guest's DNS servers and search domains are taken.
	ResolvConf string
	// Taps makes taps under the SELinux context of the pod; nil where that is
	// virt-handler's own, or there is none.
	Taps *TapChild
	// Awaits means that the guest is still in another pod, which a migration brings it from: its
	// tap is not connected before Connect (decision 331).
	Awaits bool
	// Runs means that a QEMU runs in the pod. What it has of networks beside the pods' was set up before, and
	// Setup passes over what is not there, but for the interfaces that come now: what has no tap is none of
	// QEMU's, and an interface that the pod has lost keeps no other from being served.
	Runs  bool
	Comes []string
	// Bindings are those that the KubeVirt object registers.
	Bindings networkbinding.Registered
	// Devices are the devices of the node that the pod's container was given, for interfaces that are such.
	Devices nichotplug.Devices
}

// sets reports whether QEMU does not have an interface yet that Setup is to set up.
func (p Pod) sets(name string) bool { return !p.Runs || slices.Contains(p.Comes, name) }

// makeTap makes a tap in the calling thread's network namespace.
func (p Pod) makeTap(name string, multiQueue bool) error {
	if p.Taps != nil {
		return p.Taps.make(name, multiQueue)
	}
	return makeTapHere(name, multiQueue)
}

// Interface is one of the guest's interfaces, ready for QEMU.
type Interface struct {
	// Name is the interface's name in the VMI's spec.
	Name string
	// Tap is the tap device that QEMU opens, "" for a device of the node. It belongs to layout.QEMUUser.
	Tap string
	// Device is the PCI address of the node's device that the interface is, "" for another one. Of an interface that QEMU
	// has already it need not be known.
	Device string
	// MAC is the address that the guest's interface must have.
	MAC string
	// MTU is the network's, which the guest is told too.
	MTU int
	// Queues is how many queue pairs QEMU opens. The tap is a multi-queue one
	// exactly when it is more than one.
	Queues int
	// IPs are the addresses that the guest is reached at, the first one of the
	// pod's own family first; they are what the VMI's status reports.
	IPs []string
	// Way is how virt-handler connects to the guest's ports by the interface.
	Way Way
	// PodInterface is the pod's interface that the guest's is connected to.
	PodInterface string
	// Stays is why the guest can't leave its node with the interface, "" if it can.
	Stays string
}

// Manager sets up pods' networks and serves their guests' DHCP requests.
type Manager struct {
	log logr.Logger

	mu sync.Mutex
	// servers are those of each VMI that has been set up.
	servers map[types.UID][]server
}

// server is a part that runs until it is closed; Close waits for its end.
type server interface{ Close() }

// New returns a Manager that has set up nothing yet.
func New(log logr.Logger) *Manager {
	return &Manager{log: log, servers: map[types.UID][]server{}}
}

// Setup prepares the network of the VMI's pod and starts to serve DHCP in it.
// It returns the interfaces in the order of the VMI's spec. It can be repeated
// at any time, after a crash in the midst of it too.
func (m *Manager) Setup(ctx context.Context, pod Pod, vmi *v1.VirtualMachineInstance) ([]Interface, error) {
	plans, err := planInterfaces(vmi, pod)
	if err != nil {
		return nil, err
	}
	if err := refuseHostNetwork(pod.NetNS); err != nil {
		return nil, err
	}
	// What an earlier Setup of this process serves ends first: two servers
	// would answer each request twice.
	m.Teardown(vmi.UID)
	if pod.Runs {
		if plans, err = present(pod, plans); err != nil {
			return nil, err
		}
	}
	var interfaces []Interface
	var servers []server
	for _, plan := range plans {
		if err := ctx.Err(); err != nil {
			closeAll(servers)
			return nil, err
		}
		made, serving, err := plan.binding.setup(pod, plan, m.log.WithValues("vmi", vmi.Namespace+"/"+vmi.Name, "interface", plan.name))
		servers = append(servers, serving...)
		if err != nil {
			closeAll(servers)
			return nil, fmt.Errorf("setting up interface %s: %w", plan.name, err)
		}
		interfaces = append(interfaces, made)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.servers[vmi.UID] = servers
	return interfaces, nil
}

// Connect connects the taps of a guest that a migration has brought. It can be repeated.
func (m *Manager) Connect(pod Pod, vmi *v1.VirtualMachineInstance) error {
	plans, err := planInterfaces(vmi, pod)
	if err != nil {
		return err
	}
	nl, err := openNetlink(pod.NetNS)
	if err != nil {
		return err
	}
	defer nl.Close()
	for _, plan := range plans {
		if plan.foreign || plan.device {
			continue // its network plugin has
		}
		if err := plan.connect(nl); err != nil {
			return fmt.Errorf("connecting interface %s: %w", plan.name, err)
		}
	}
	return nil
}

// present are the plans of interfaces that are to come, that an earlier Setup has made the tap of and the pod has, and
// of the pods' own network.
func present(pod Pod, plans []plan) ([]plan, error) {
	links, err := linksOf(pod)
	if err != nil {
		return nil, err
	}
	has := func(name string) bool { return links[name] != nil }
	return slices.DeleteFunc(plans, func(p plan) bool {
		there := has(p.tap) && has(p.podInterface) || p.foreign && (has(p.tap) || has(p.podInterface))
		return p.secondary && !p.device && !pod.sets(p.name) && !there
	}), nil
}

// linksOf are the links in a pod, by their names.
func linksOf(pod Pod) (map[string]*netlink.LinkAttrs, error) {
	nl, err := openNetlink(pod.NetNS)
	if err != nil {
		return nil, err
	}
	defer nl.Close()
	list, err := nl.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing the links of the pod: %w", err)
	}
	links := map[string]*netlink.LinkAttrs{}
	for _, link := range list {
		links[link.Attrs().Name] = link.Attrs()
	}
	return links, nil
}

// Loose are the interfaces, of those named, whose taps are on a bridge in the pod that the pod's own interface is not
// on: somebody has taken that out of the pod, and may have brought another one.
func (m *Manager) Loose(pod Pod, names []string) ([]string, error) {
	links, err := linksOf(pod)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		bridge, in := links[layout.SecondaryLink("k6t-", name)], links[layout.SecondaryInterface(name)]
		return bridge == nil || in != nil && in.MasterIndex == bridge.Index
	}), nil
}

// Tidy removes the bridges and taps in the pod that were made for networks beside the pods', but for those of the
// interfaces named. It can be repeated.
func (m *Manager) Tidy(pod Pod, keep []string) error {
	if err := refuseHostNetwork(pod.NetNS); err != nil {
		return err
	}
	nl, err := openNetlink(pod.NetNS)
	if err != nil {
		return err
	}
	defer nl.Close()
	links, err := nl.LinkList()
	if err != nil {
		return fmt.Errorf("listing the links of the pod: %w", err)
	}
	for _, link := range links {
		if name := link.Attrs().Name; !nichotplug.IsLinkOf(name, keep) {
			if err := nl.LinkDel(link); err != nil {
				return fmt.Errorf("removing %s: %w", name, err)
			}
		}
	}
	return nil
}

// Teardown ends what runs for a VMI. What lives in the pod's network namespace
// goes with the pod.
func (m *Manager) Teardown(vmi types.UID) {
	m.mu.Lock()
	servers := m.servers[vmi]
	delete(m.servers, vmi)
	m.mu.Unlock()
	closeAll(servers)
}

// Close ends everything that runs, when virt-handler itself ends.
func (m *Manager) Close() {
	m.mu.Lock()
	all := m.servers
	m.servers = map[types.UID][]server{}
	m.mu.Unlock()
	for _, servers := range all {
		closeAll(servers)
	}
}

func closeAll(servers []server) {
	for _, s := range servers {
		s.Close()
	}
}

// refuseHostNetwork makes sure that a mix-up of processes can never turn a
// node's own network into a guest's.
func refuseHostNetwork(netns *os.File) error {
	given, err := netns.Stat()
	if err != nil {
		return fmt.Errorf("looking at the pod's network namespace: %w", err)
	}
	for _, own := range []string{"/proc/self/ns/net", "/proc/1/ns/net"} {
		info, err := os.Stat(own)
		if errors.Is(err, fs.ErrPermission) {
			continue // a process with more rights than ours; not all nodes let us see its namespaces
		}
		if err != nil {
			return fmt.Errorf("looking at virt-handler's network namespace: %w", err)
		}
		if os.SameFile(given, info) {
			return errors.New("the pod shares its network namespace with the node; a guest's network must be a pod's own")
		}
	}
	return nil
}
