package dhcp

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/rfc1035label"
)

// answer4 returns nil for a request that gets no answer.
func (l *Lease) answer4(request *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, error) {
	if request.OpCode != dhcpv4.OpcodeBootRequest || !bytes.Equal(request.ClientHWAddr, l.MAC) || !l.Address.IsValid() {
		return nil, nil
	}
	kind := l.answerKind(request)
	if kind == dhcpv4.MessageTypeNone {
		return nil, nil
	}
	answer, err := dhcpv4.NewReplyFromRequest(request,
		dhcpv4.WithMessageType(kind),
		dhcpv4.WithServerIP(ip(l.ServerID)),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(ip(l.ServerID))))
	if err != nil {
		return nil, fmt.Errorf("answering %s: %w", request.MessageType(), err)
	}
	if kind == dhcpv4.MessageTypeNak {
		return answer, nil
	}
	if request.MessageType() != dhcpv4.MessageTypeInform {
		answer.YourIPAddr = ip(l.Address.Addr())
		answer.UpdateOption(dhcpv4.OptIPAddressLeaseTime(forever))
	}
	for _, option := range l.options4() {
		answer.UpdateOption(option)
	}
	// A network boot ROM reads the header's field, not the option.
	answer.BootFileName = l.BootFile
	return answer, nil
}

func (l *Lease) answerKind(request *dhcpv4.DHCPv4) dhcpv4.MessageType {
	switch request.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		return dhcpv4.MessageTypeOffer
	case dhcpv4.MessageTypeInform:
		return dhcpv4.MessageTypeAck
	case dhcpv4.MessageTypeRequest:
	default: // release and decline change nothing: the guest keeps the address
		return dhcpv4.MessageTypeNone
	}
	if chosen := request.ServerIdentifier(); chosen != nil && !chosen.Equal(ip(l.ServerID)) {
		return dhcpv4.MessageTypeNone // the guest takes another server's offer
	}
	wanted := request.RequestedIPAddress()
	if wanted == nil {
		wanted = request.ClientIPAddr
	}
	if !wanted.Equal(ip(l.Address.Addr())) {
		// The guest asks for an earlier address, from a snapshot or an image.
		return dhcpv4.MessageTypeNak
	}
	return dhcpv4.MessageTypeAck
}

func (l *Lease) options4() []dhcpv4.Option {
	mask := net.CIDRMask(l.Address.Bits(), l.Address.Addr().BitLen())
	options := []dhcpv4.Option{
		dhcpv4.OptSubnetMask(mask),
		dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, []byte{byte(l.MTU >> 8), byte(l.MTU)}),
	}
	add := func(set bool, option dhcpv4.Option) {
		if set {
			options = append(options, option)
		}
	}
	if gateway := l.defaultGateway(); gateway.IsValid() {
		options = append(options, dhcpv4.OptRouter(ip(gateway)))
	}
	if routes := l.classlessRoutes(); routes != nil {
		options = append(options, dhcpv4.OptClasslessStaticRoute(routes...))
	}
	add(l.Hostname != "", dhcpv4.OptHostName(l.Hostname))
	add(l.Domain != "", dhcpv4.OptDomainName(l.Domain))
	add(len(l.DNS) > 0, dhcpv4.OptDNS(ips(l.DNS)...))
	add(len(l.NTP) > 0, dhcpv4.OptNTPServers(ips(l.NTP)...))
	add(l.TFTPServer != "", dhcpv4.OptTFTPServerName(l.TFTPServer))
	add(l.BootFile != "", dhcpv4.OptBootFileName(l.BootFile))
	if len(l.Search) > 0 {
		options = append(options, dhcpv4.OptDomainSearch(&rfc1035label.Labels{Labels: l.Search}))
	}
	for code, value := range l.Private {
		options = append(options, dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(code), []byte(value)))
	}
	return options
}

func (l *Lease) defaultGateway() netip.Addr {
	for _, route := range l.Routes {
		if route.Destination.Bits() == 0 {
			return route.Gateway
		}
	}
	return netip.Addr{}
}

// classlessRoutes returns the routes of option 121, nil if the default gateway suffices. Clients of the option ignore
// option 3, so the default route is included. A gateway outside the guest's network first needs a route on the link.
func (l *Lease) classlessRoutes() []*dhcpv4.Route {
	gateway := l.defaultGateway()
	inside := !gateway.IsValid() || l.Address.Masked().Contains(gateway)
	if inside && (len(l.Routes) == 0 || len(l.Routes) == 1 && gateway.IsValid()) {
		return nil
	}
	var routes []*dhcpv4.Route
	onLink := func(addr netip.Addr) {
		routes = append(routes, route4(netip.PrefixFrom(addr, addr.BitLen()), netip.IPv4Unspecified()))
	}
	known := map[netip.Addr]bool{}
	for _, route := range l.Routes {
		via := route.Gateway
		if !via.IsValid() {
			via = netip.IPv4Unspecified()
		} else if !l.Address.Masked().Contains(via) && !known[via] {
			known[via] = true
			onLink(via)
		}
		routes = append(routes, route4(route.Destination, via))
	}
	return routes
}

func route4(destination netip.Prefix, via netip.Addr) *dhcpv4.Route {
	return &dhcpv4.Route{
		Dest:   &net.IPNet{IP: ip(destination.Addr()), Mask: net.CIDRMask(destination.Bits(), destination.Addr().BitLen())},
		Router: ip(via),
	}
}

func ip(addr netip.Addr) net.IP { return net.IP(addr.AsSlice()) }

func ips(addrs []netip.Addr) []net.IP {
	var out []net.IP
	for _, addr := range addrs {
		out = append(out, ip(addr))
	}
	return out
}
