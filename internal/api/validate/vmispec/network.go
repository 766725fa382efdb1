package vmispec

import (
	"fmt"
	"net"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/rules/network/ipaddress"
)

// maxInterfaceName leaves room for the names of host devices that are derived from it.
const maxInterfaceName = 63

var interfaceName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Each network and interface must have its counterpart.
func network(spec *v1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	errs := networks(spec, at.Child("networks"))
	return append(errs, interfaces(spec, at.Child("domain", "devices", "interfaces"))...)
}

func networks(spec *v1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	attached := map[string]bool{}
	for i := range spec.Domain.Devices.Interfaces {
		attached[spec.Domain.Devices.Interfaces[i].Name] = true
	}
	var errs field.ErrorList
	names := map[string]bool{}
	pods := 0
	for i := range spec.Networks {
		n, at := &spec.Networks[i], at.Index(i)
		errs = append(errs, fieldcheck.Unique(names, n.Name, at.Child("name"))...)
		switch {
		case n.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "interfaces refer to a network by its name"))
		case !attached[n.Name]:
			errs = append(errs, field.Invalid(at.Child("name"), n.Name, "must be the name of an interface in spec.domain.devices.interfaces"))
		}
		if n.Pod != nil {
			if pods++; pods > 1 {
				errs = append(errs, field.Forbidden(at.Child("pod"), "a guest is on the pod network at most once"))
			}
		}
		errs = append(errs, source(&n.NetworkSource, at)...)
	}
	return errs
}

func source(n *v1.NetworkSource, at *field.Path) field.ErrorList {
	var chosen []string
	var errs field.ErrorList
	if n.Pod != nil {
		chosen = append(chosen, "pod")
		errs = append(errs, cidr(n.Pod.VMNetworkCIDR, true, at.Child("pod", "vmNetworkCIDR"))...)
		errs = append(errs, cidr(n.Pod.VMIPv6NetworkCIDR, false, at.Child("pod", "vmIPv6NetworkCIDR"))...)
	}
	if n.Multus != nil {
		chosen = append(chosen, "multus")
		errs = append(errs, attachmentName(n.Multus.NetworkName, at.Child("multus", "networkName"))...)
	}
	return append(errs, fieldcheck.ExactlyOne(at, chosen, "must say which network it is: pod or multus")...)
}

func attachmentName(text string, at *field.Path) field.ErrorList {
	if text == "" {
		return field.ErrorList{field.Required(at, "is the name of a NetworkAttachmentDefinition, as in red or namespace/red")}
	}
	namespace, name, found := strings.Cut(text, "/")
	if !found {
		return fieldcheck.DNSSubdomain(text, at)
	}
	errs := fieldcheck.Problems(text, at, validation.IsDNS1123Label(namespace))
	return append(errs, fieldcheck.Problems(text, at, validation.IsDNS1123Subdomain(name))...)
}

// There must be room for the gateway and the guest.
func cidr(text string, v4 bool, at *field.Path) field.ErrorList {
	if text == "" {
		return nil
	}
	prefix, err := ipaddress.ParsePrefix(text)
	switch {
	case err != nil || prefix.Addr().Is4() != v4:
		family := "IPv4"
		if !v4 {
			family = "IPv6"
		}
		return field.ErrorList{field.Invalid(at, text, "must be an "+family+" network, such as 10.0.2.0/24 or fd10:0:2::/120")}
	case prefix.Addr().BitLen()-prefix.Bits() < 2:
		return field.ErrorList{field.Invalid(at, text, "must have room for a gateway and a guest")}
	}
	return nil
}

func interfaces(spec *v1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	known := map[string]*v1.Network{}
	for i := range spec.Networks {
		known[spec.Networks[i].Name] = &spec.Networks[i]
	}
	seen := seenInterfaces{
		names: map[string]bool{}, macs: map[string]bool{}, addresses: map[string]bool{},
		indices: map[int]bool{}, ports: map[string]bool{},
	}
	var errs field.ErrorList
	for i := range spec.Domain.Devices.Interfaces {
		iface, at := &spec.Domain.Devices.Interfaces[i], at.Index(i)
		errs = append(errs, fieldcheck.Pattern(iface.Name, at.Child("name"), interfaceName, "must be made of letters, digits, _ and -")...)
		if len(iface.Name) > maxInterfaceName {
			errs = append(errs, field.TooLong(at.Child("name"), iface.Name, maxInterfaceName))
		}
		switch {
		case iface.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "is the name of the interface's network"))
		case known[iface.Name] == nil:
			errs = append(errs, field.Invalid(at.Child("name"), iface.Name, "must be the name of a network in spec.networks"))
		}
		errs = append(errs, binding(iface, at)...)
		errs = append(errs, device(iface, known[iface.Name], at)...)
		if n := known[iface.Name]; n != nil && n.Multus != nil && iface.Masquerade != nil {
			errs = append(errs, field.Forbidden(at.Child("masquerade"), "is for the pod network; an interface on a multus network is connected by bridge or sriov"))
		}
		if n := known[iface.Name]; n != nil && n.Multus == nil && iface.State == v1.InterfaceStateAbsent {
			errs = append(errs, field.Forbidden(at.Child("state"), "only an interface on a multus network can be absent"))
		}
		errs = append(errs, hardware(iface, at)...)
		errs = append(errs, ports(iface.Ports, at.Child("ports"))...)
		errs = append(errs, portRanges(iface, at)...)
		errs = append(errs, dhcp(iface.DHCPOptions, at.Child("dhcpOptions"))...)
		errs = append(errs, seen.judge(iface, at)...)
	}
	return errs
}

// seenInterfaces has the values that must be unique among a guest's interfaces.
type seenInterfaces struct {
	names, macs, addresses, ports map[string]bool
	indices                       map[int]bool
}

func (s seenInterfaces) judge(iface *v1.Interface, at *field.Path) field.ErrorList {
	errs := fieldcheck.Unique(s.names, iface.Name, at.Child("name"))
	errs = append(errs, fieldcheck.Unique(s.macs, strings.ReplaceAll(strings.ToLower(iface.MacAddress), "-", ":"), at.Child("macAddress"))...)
	errs = append(errs, fieldcheck.Unique(s.addresses, iface.PciAddress, at.Child("pciAddress"))...)
	errs = append(errs, fieldcheck.Unique(s.indices, iface.ACPIIndex, at.Child("acpiIndex"))...)
	for i, port := range iface.Ports {
		errs = append(errs, fieldcheck.Unique(s.ports, port.Name, at.Child("ports").Index(i).Child("name"))...)
	}
	return errs
}

func binding(iface *v1.Interface, at *field.Path) field.ErrorList {
	var chosen []string
	if iface.Masquerade != nil {
		chosen = append(chosen, "masquerade")
	}
	if iface.Bridge != nil {
		chosen = append(chosen, "bridge")
	}
	if iface.Binding != nil {
		chosen = append(chosen, "binding")
	}
	if iface.SRIOV != nil {
		chosen = append(chosen, "sriov")
	}
	unsupported := iface.PasstBinding != nil ||
		iface.DeprecatedMacvtap != nil || iface.DeprecatedPasst != nil || iface.DeprecatedSlirp != nil
	if unsupported && len(chosen) == 0 {
		// The lack of support was already reported.
		return nil
	}
	return fieldcheck.ExactlyOne(at, chosen, "an interface is connected by exactly one of masquerade, bridge, sriov and binding")
}

// QEMU can't provide the options of other interfaces for a device of the node.
func device(iface *v1.Interface, of *v1.Network, at *field.Path) field.ErrorList {
	if iface.SRIOV == nil {
		return nil
	}
	var errs field.ErrorList
	if of != nil && of.Multus == nil {
		errs = append(errs, field.Forbidden(at.Child("sriov"), "is for multus networks: the NetworkAttachmentDefinition says which device it is"))
	}
	if iface.Model != "" && iface.Model != v1.VirtIO {
		errs = append(errs, field.Forbidden(at.Child("model"), "an SR-IOV interface is the device of the node, and of its model"))
	}
	if iface.State == v1.InterfaceStateLinkDown {
		errs = append(errs, field.Forbidden(at.Child("state"), "the link of an SR-IOV interface is that of its device; it can be absent"))
	}
	if iface.DHCPOptions != nil {
		errs = append(errs, field.Forbidden(at.Child("dhcpOptions"), "an SR-IOV interface gets no address from Drydock, but from its network"))
	}
	return errs
}

func hardware(iface *v1.Interface, at *field.Path) field.ErrorList {
	errs := fieldcheck.OneOf(iface.Model, at.Child("model"), v1.VirtIO, "e1000", "e1000e", "ne2k_pci", "pcnet", "rtl8139")
	if iface.MacAddress != "" {
		address, err := net.ParseMAC(iface.MacAddress)
		switch {
		case err != nil || len(address) != 6:
			errs = append(errs, field.Invalid(at.Child("macAddress"), iface.MacAddress, "must be a MAC address, such as 02:00:00:00:00:01"))
		case address[0]&1 == 1:
			errs = append(errs, field.Invalid(at.Child("macAddress"), iface.MacAddress, "must be the address of one interface, not of a group: its first byte must be even"))
		}
	}
	errs = append(errs, fieldcheck.Pattern(iface.PciAddress, at.Child("pciAddress"), pciAddress, pciSentence)...)
	if iface.ACPIIndex < 0 {
		errs = append(errs, field.Invalid(at.Child("acpiIndex"), iface.ACPIIndex, "must not be negative"))
	}
	return errs
}

func ports(list []v1.Port, at *field.Path) field.ErrorList {
	seen := map[string]bool{}
	var errs field.ErrorList
	for i, port := range list {
		at := at.Index(i)
		errs = append(errs, portNumber(int(port.Port), at.Child("port"))...)
		protocol := strings.ToUpper(port.Protocol)
		errs = append(errs, fieldcheck.OneOf(protocol, at.Child("protocol"), "TCP", "UDP")...)
		if protocol == "" {
			protocol = "TCP"
		}
		errs = append(errs, fieldcheck.Unique(seen, fmt.Sprintf("%d/%s", port.Port, protocol), at.Child("port"))...)
		if port.Name != "" {
			errs = append(errs, fieldcheck.Problems(port.Name, at.Child("name"), validation.IsValidPortName(port.Name))...)
		}
	}
	return errs
}

func portRanges(iface *v1.Interface, at *field.Path) field.ErrorList {
	if len(iface.PortRanges) == 0 {
		return nil
	}
	at = at.Child("portRanges")
	var errs field.ErrorList
	if iface.Masquerade == nil {
		errs = append(errs, field.Forbidden(at, "is for masquerade interfaces only"))
	}
	if len(iface.Ports) > 0 {
		errs = append(errs, field.Forbidden(at, "and ports exclude each other: write a single port as a range that ends where it starts"))
	}
	for i, r := range iface.PortRanges {
		at := at.Index(i)
		errs = append(errs, fieldcheck.RequiredOneOf(strings.ToUpper(r.Protocol), at.Child("protocol"), []string{"TCP", "UDP"})...)
		errs = append(errs, portNumber(int(r.Start), at.Child("start"))...)
		errs = append(errs, portNumber(int(r.End), at.Child("end"))...)
		if r.End < r.Start {
			errs = append(errs, field.Invalid(at.Child("end"), r.End, "must not be less than start"))
		}
	}
	return errs
}

// These are the first and last DHCP options for private use.
const (
	firstPrivateOption = 224
	lastPrivateOption  = 254
)

func dhcp(options *v1.DHCPOptions, at *field.Path) field.ErrorList {
	if options == nil {
		return nil
	}
	var errs field.ErrorList
	for i, server := range options.NTPServers {
		if address, err := ipaddress.Parse(server); err != nil || !address.Is4() {
			errs = append(errs, field.Invalid(at.Child("ntpServers").Index(i), server, "must be an IPv4 address"))
		}
	}
	seen := map[int]bool{}
	for i, option := range options.PrivateOptions {
		at := at.Child("privateOptions").Index(i)
		if option.Option < firstPrivateOption || option.Option > lastPrivateOption {
			errs = append(errs, field.Invalid(at.Child("option"), option.Option, "must be between 224 and 254"))
		}
		if option.Value == "" {
			errs = append(errs, field.Required(at.Child("value"), "is the value that the guest gets"))
		}
		errs = append(errs, fieldcheck.Unique(seen, option.Option, at.Child("option"))...)
	}
	return errs
}
