// Package network owns the guest's network inside its launcher pod's network namespace: bridge, tap, address
// translation, and the DHCP server that gives the guest its address.
//
// It works from outside the pod, in a namespace that the caller has opened. All state is in the namespace: a repeated
// Setup finds it, changes nothing that the guest could notice, and serves DHCP again. It must know nothing of QEMU,
// pods or the API server.
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
	"drydock.dev/drydock/internal/logs"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/network/networkbinding"
)

// Pod is Setup's view of a launcher pod.
type Pod struct {
	// NetNS may be closed once Setup has returned.
	NetNS *os.File
	// ResolvConf is the container's /etc/resolv.conf, for DNS.
	ResolvConf string
	// Taps makes taps under the pod's SELinux context; nil if that is virt-handler's or there is none.
	Taps *TapChild
	// Awaits means that a migration will bring the guest: only Connect connects its tap (decision 331).
	Awaits bool
	// Runs means that a QEMU runs in the pod. Setup then skips missing secondary networks except those in Comes: QEMU
	// has no interface without a tap, and a lost interface must not stop the service of the others.
	Runs     bool
	Comes    []string
	Bindings networkbinding.Registered
	Devices  nichotplug.Devices
}

// sets reports whether Setup sets up an interface that QEMU does not have.
func (p Pod) sets(name string) bool { return !p.Runs || slices.Contains(p.Comes, name) }

func (p Pod) makeTap(name string, multiQueue bool) error {
	if p.Taps != nil {
		return p.Taps.make(name, multiQueue)
	}
	return makeTapHere(name, multiQueue)
}

// Interface is one of the guest's interfaces, ready for QEMU.
type Interface struct {
	Name string
	Tap  string // "" for a device of the node
	// Device is the PCI address of a device of the node, or "". It may be unknown if QEMU already has it.
	Device string
	MAC    string
	MTU    int
	// The tap is multi-queue exactly if Queues is more than one.
	Queues int
	// IPs are for the VMI's status, IPv4 first.
	IPs          []string
	Way          Way
	PodInterface string
	// Stays is why the guest can't leave its node with the interface, "" if it can.
	Stays string
}

// Manager sets up networks and serves guests' DHCP requests.
type Manager struct {
	log logr.Logger

	mu      sync.Mutex
	servers map[types.UID][]server
}

// server runs until it is closed; Close waits for its end.
type server interface{ Close() }

// New returns an idle Manager.
func New(log logr.Logger) *Manager {
	return &Manager{log: log, servers: map[types.UID][]server{}}
}

// Setup prepares a pod's network and starts its DHCP servers. It returns the interfaces in the spec's order. It may be
// repeated, even after a crash.
func (m *Manager) Setup(ctx context.Context, pod Pod, vmi *v1.VirtualMachineInstance) ([]Interface, error) {
	plans, err := planInterfaces(vmi, pod)
	if err != nil {
		return nil, err
	}
	if err := refuseHostNetwork(pod.NetNS); err != nil {
		return nil, err
	}
	// Two servers would answer each request twice.
	m.Teardown(vmi.UID)
	if pod.Runs {
		links, err := linksOf(pod)
		if err != nil {
			return nil, err
		}
		has := func(name string) bool { return links[name] != nil }
		plans = slices.DeleteFunc(plans, func(p plan) bool {
			there := has(p.tap) && has(p.podInterface) || p.foreign && (has(p.tap) || has(p.podInterface))
			return p.secondary && !p.device && !pod.sets(p.name) && !there
		})
	}
	var interfaces []Interface
	var servers []server
	for _, plan := range plans {
		if err := ctx.Err(); err != nil {
			closeAll(servers)
			return nil, err
		}
		made, serving, err := plan.binding.setup(pod, plan, logs.VMI(m.log, vmi).WithValues("interface", plan.name))
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

// Connect connects the taps of a guest that a migration has brought. It may be repeated.
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
			continue // its network plugin has connected it
		}
		if err := plan.connect(nl); err != nil {
			return fmt.Errorf("connecting interface %s: %w", plan.name, err)
		}
	}
	return nil
}

func linksOf(pod Pod) (map[string]*netlink.LinkAttrs, error) {
	nl, err := openNetlink(pod.NetNS)
	if err != nil {
		return nil, err
	}
	defer nl.Close()
	list, err := complete(nl.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing the links of the pod: %w", err)
	}
	links := map[string]*netlink.LinkAttrs{}
	for _, link := range list {
		links[link.Attrs().Name] = link.Attrs()
	}
	return links, nil
}

// Disconnected returns the named interfaces whose bridge no longer has the pod's interface: somebody has removed or
// replaced it.
func (m *Manager) Disconnected(pod Pod, names []string) ([]string, error) {
	links, err := linksOf(pod)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		bridge, in := links[layout.SecondaryLink("k6t-", name)], links[layout.SecondaryInterface(name)]
		return bridge == nil || in != nil && in.MasterIndex == bridge.Index
	}), nil
}

// RemoveLeftovers removes bridges and taps of secondary networks not in keep. It may be repeated.
func (m *Manager) RemoveLeftovers(pod Pod, keep []string) error {
	if err := refuseHostNetwork(pod.NetNS); err != nil {
		return err
	}
	nl, err := openNetlink(pod.NetNS)
	if err != nil {
		return err
	}
	defer nl.Close()
	links, err := complete(nl.LinkList)
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

// Teardown stops a VMI's servers. The links go with the pod.
func (m *Manager) Teardown(vmi types.UID) {
	m.mu.Lock()
	servers := m.servers[vmi]
	delete(m.servers, vmi)
	m.mu.Unlock()
	closeAll(servers)
}

// Close stops all servers.
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

// refuseHostNetwork guards against a mix-up of processes that would make the node's network a guest's.
func refuseHostNetwork(netns *os.File) error {
	given, err := netns.Stat()
	if err != nil {
		return fmt.Errorf("looking at the pod's network namespace: %w", err)
	}
	for _, own := range []string{"/proc/self/ns/net", "/proc/1/ns/net"} {
		info, err := os.Stat(own)
		if errors.Is(err, fs.ErrPermission) {
			continue // not all nodes let us see the namespaces of a process with more rights
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
