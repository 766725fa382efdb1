package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/network/ipaddress"
)

// These names in the pod's network namespace are KubeVirt's.
const (
	podInterface = "eth0"
	podBridge    = "k6t-eth0"
	podTap       = "tap0"
)

// Networks behind address translation, unless the VMI specifies another.
const (
	defaultCIDR4 = "10.0.2.0/24"
	defaultCIDR6 = "fd10:0:2::/120"
)

type plan struct {
	name    string
	path    string
	binding binding

	bridge, tap, podInterface string
	// foreign means that a network plugin makes and connects the tap. stays is Interface.Stays.
	foreign bool
	stays   string
	device  bool
	// secondary means that the network is that of a NetworkAttachmentDefinition, attachment.
	secondary  bool
	attachment string
	// macChosen is false for an interface on the pod network without a MAC in the spec: bridge binding then takes the
	// pod's.
	mac              net.HardwareAddr
	macChosen        bool
	queues           int
	ports            []port
	subnet4, subnet6 subnet
	options          guestOptions
}

type subnet struct {
	router, guest netip.Addr
	bits          int
}

type port struct {
	protocol    byte
	first, last uint16
}

type guestOptions struct {
	hostname, subdomain string
	searches            []string
	dhcp                v1.DHCPOptions
}

// planInterfaces returns all errors at once, each with the faulty field.
func planInterfaces(vmi *v1.VirtualMachineInstance, pod Pod) ([]plan, error) {
	var plans []plan
	var errs []error
	onPodNetwork := ""
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		iface := &vmi.Spec.Domain.Devices.Interfaces[i]
		if iface.State == v1.InterfaceStateAbsent {
			continue
		}
		path := fmt.Sprintf("spec.domain.devices.interfaces[%d]", i)
		p, err := planInterface(vmi, iface, path, pod)
		if err == nil && !p.secondary && onPodNetwork != "" {
			err = fmt.Errorf("%s: the pod network has one interface, and %s is connected to it already", path, onPodNetwork)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !p.secondary {
			onPodNetwork = p.name
		}
		plans = append(plans, p)
	}
	return plans, errors.Join(errs...)
}

func searches(vmi *v1.VirtualMachineInstance) []string {
	if c := vmi.Spec.DNSConfig; c != nil {
		return c.Searches
	}
	return nil
}

func planInterface(vmi *v1.VirtualMachineInstance, iface *v1.Interface, path string, pod Pod) (plan, error) {
	source, err := networkOf(vmi, iface.Name, path)
	if err != nil {
		return plan{}, err
	}
	p := plan{
		name: iface.Name, path: path,
		queues:  queues(vmi, iface),
		options: guestOptions{hostname: machine.Hostname(vmi), subdomain: vmi.Spec.Subdomain, searches: searches(vmi)},
	}
	p.links(source)
	if iface.DHCPOptions != nil {
		p.options.dhcp = *iface.DHCPOptions
	}
	if err = p.bind(iface, pod); err != nil {
		return plan{}, err
	}
	p.device = iface.SRIOV != nil
	if p.secondary && iface.Bridge == nil && iface.Binding == nil && !p.device {
		return plan{}, fmt.Errorf("%s.%s: an interface on a multus network is connected by bridge or sriov", path, p.binding.name)
	}
	if p.device && !p.secondary {
		return plan{}, fmt.Errorf("%s.sriov: only an interface on a multus network is a device of the node", path)
	}
	if p.ports, err = portsOf(iface, path); err != nil {
		return plan{}, err
	}
	// On a secondary network a guest keeps its address in every pod.
	p.macChosen = iface.MacAddress != "" || p.secondary || p.foreign
	if p.mac, err = net.ParseMAC(machine.MAC(vmi, iface.Name)); err != nil {
		return plan{}, fmt.Errorf("%s.macAddress: %w", path, err)
	}
	return p, p.subnets(source.Pod)
}

func (p *plan) links(source *v1.Network) {
	if source.Multus == nil {
		p.bridge, p.tap, p.podInterface = podBridge, podTap, podInterface
		return
	}
	p.secondary, p.attachment = true, source.Multus.NetworkName
	p.podInterface = layout.SecondaryInterface(source.Name)
	p.bridge = layout.SecondaryLink("k6t-", source.Name)
	p.tap = layout.SecondaryLink("tap", source.Name)
}

// subnets are behind translation, which only the pod network has.
func (p *plan) subnets(pod *v1.PodNetwork) (err error) {
	if pod == nil {
		return nil
	}
	if p.subnet4, err = subnetOf(pod.VMNetworkCIDR, defaultCIDR4); err != nil {
		return fmt.Errorf("spec.networks: network %s: pod.vmNetworkCIDR: %w", p.name, err)
	}
	if p.subnet6, err = subnetOf(pod.VMIPv6NetworkCIDR, defaultCIDR6); err != nil {
		return fmt.Errorf("spec.networks: network %s: pod.vmIPv6NetworkCIDR: %w", p.name, err)
	}
	return nil
}

func networkOf(vmi *v1.VirtualMachineInstance, name, path string) (*v1.Network, error) {
	for i := range vmi.Spec.Networks {
		network := &vmi.Spec.Networks[i]
		switch {
		case network.Name != name:
		case network.Pod == nil && network.Multus == nil:
			return nil, fmt.Errorf("spec.networks[%d]: must say where the network comes from: pod or multus", i)
		default:
			return network, nil
		}
	}
	return nil, fmt.Errorf("%s.name: no network in spec.networks is called %q", path, name)
}

// If QEMU runs with a binding that is no longer registered, the interface is left alone.
func (p *plan) bind(iface *v1.Interface, pod Pod) error {
	of, err := pod.Bindings.Of(iface)
	switch {
	case err != nil && pod.Runs:
		p.binding, p.foreign, p.stays = binding{name: "binding", setup: setupForeign}, true, err.Error()
		return nil
	case err != nil:
		return fmt.Errorf("%s.binding.name: %w", p.path, err)
	case of == nil:
		for _, b := range bindings {
			if !b.chosen(&iface.InterfaceBindingMethod) {
				continue
			}
			if b.setup == nil {
				return fmt.Errorf("%s.%s: not supported by Drydock", p.path, b.name)
			}
			p.binding = b
			return nil
		}
		return fmt.Errorf("%s: must say how it is connected: masquerade or bridge", p.path)
	}
	p.binding = binding{name: "binding", setup: setupManaged}
	if !of.Managed {
		p.foreign, p.binding.setup = true, setupForeign
	}
	if !of.Migrates {
		p.stays = fmt.Sprintf("the network binding %s does not say that its guests can migrate (migration)", iface.Binding.Name)
	}
	return nil
}

func portsOf(iface *v1.Interface, path string) ([]port, error) {
	var ports []port
	for i, declared := range iface.Ports {
		p, err := portRange(declared.Protocol, declared.Port, declared.Port)
		if err != nil {
			return nil, fmt.Errorf("%s.ports[%d].%w", path, i, err)
		}
		ports = append(ports, p)
	}
	for i, declared := range iface.PortRanges {
		p, err := portRange(declared.Protocol, declared.Start, declared.End)
		if err != nil {
			return nil, fmt.Errorf("%s.portRanges[%d].%w", path, i, err)
		}
		ports = append(ports, p)
	}
	return ports, nil
}

func portRange(protocol string, first, last int32) (port, error) {
	switch {
	case first == last && (first < 1 || last > 65535):
		return port{}, fmt.Errorf("port: %d: must be from 1 to 65535", first)
	case first < 1 || last > 65535 || last < first:
		return port{}, fmt.Errorf("port: %d-%d: must be from 1 to 65535, the lower one first", first, last)
	}
	p := port{first: uint16(first), last: uint16(last)}
	switch strings.ToUpper(protocol) {
	case "", "TCP":
		p.protocol = protocolTCP
	case "UDP":
		p.protocol = protocolUDP
	default:
		return port{}, fmt.Errorf("protocol: %q: must be TCP or UDP", protocol)
	}
	return p, nil
}

func queues(vmi *v1.VirtualMachineInstance, iface *v1.Interface) int {
	if iface.Model != "" && iface.Model != v1.VirtIO {
		return 1 // no other model has more
	}
	return machine.Queues(&vmi.Spec)
}

// The router gets the first address, the guest the second.
func subnetOf(cidr, unless string) (subnet, error) {
	if cidr == "" {
		cidr = unless
	}
	prefix, err := ipaddress.ParsePrefix(cidr)
	if err != nil {
		return subnet{}, err
	}
	prefix = prefix.Masked()
	s := subnet{router: prefix.Addr().Next(), bits: prefix.Bits()}
	s.guest = s.router.Next()
	// The last IPv4 address is for broadcasts.
	if !prefix.Contains(s.guest) || !prefix.Contains(s.guest.Next()) {
		return subnet{}, fmt.Errorf("%s: too small: the router and the guest need an address each", cidr)
	}
	return s, nil
}

func (s subnet) routerPrefix() netip.Prefix { return netip.PrefixFrom(s.router, s.bits) }
func (s subnet) guestPrefix() netip.Prefix  { return netip.PrefixFrom(s.guest, s.bits) }
