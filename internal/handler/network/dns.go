package network

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"drydock.dev/drydock/internal/handler/network/dhcp"
	"drydock.dev/drydock/internal/rules/network/ipaddress"
)

type resolver struct {
	servers4, servers6 []netip.Addr
	search             []string
}

// Unknown options are skipped, as by the resolver.
func parseResolvConf(text string) resolver {
	var r resolver
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			addr, err := ipaddress.Parse(fields[1])
			switch {
			case err != nil:
			case addr.Is4():
				r.servers4 = append(r.servers4, addr)
			default:
				r.servers6 = append(r.servers6, addr.WithZone(""))
			}
		case "search", "domain": // the last one counts
			r.search = fields[1:]
		}
	}
	return r
}

// domains returns the guest's domain and search list. The cluster's DNS has a VMI with a subdomain below that, unless
// the VMI's own search list (own) already begins with it.
func (r resolver) domains(subdomain string, own []string) (domain string, search []string) {
	search = r.search
	if len(search) > 0 {
		domain = search[0]
	}
	if subdomain == "" || domain == "" || slices.Contains(own, domain) && strings.HasPrefix(domain, subdomain+".") {
		return domain, slices.Clone(search)
	}
	domain = subdomain + "." + domain
	if !slices.Contains(search, domain) {
		search = append([]string{domain}, search...)
	}
	return domain, slices.Clone(search)
}

func (p plan) lease(pod Pod, mac net.HardwareAddr, mtu int) (dhcp.Lease, error) {
	dns := parseResolvConf(pod.ResolvConf)
	lease := dhcp.Lease{
		MAC: mac, ServerMAC: routerMAC, MTU: mtu,
		Hostname:   p.options.hostname,
		DNS:        dns.servers4,
		TFTPServer: p.options.dhcp.TFTPServerName,
		BootFile:   p.options.dhcp.BootFileName,
		Private:    map[uint8]string{},
	}
	lease.Domain, lease.Search = dns.domains(p.options.subdomain, p.options.searches)
	for i, server := range p.options.dhcp.NTPServers {
		addr, err := ipaddress.Parse(server)
		if err != nil || !addr.Is4() {
			return dhcp.Lease{}, fmt.Errorf("%s.dhcpOptions.ntpServers[%d]: %q: must be an IPv4 address", p.path, i, server)
		}
		lease.NTP = append(lease.NTP, addr)
	}
	for i, option := range p.options.dhcp.PrivateOptions {
		if option.Option < 224 || option.Option > 254 {
			return dhcp.Lease{}, fmt.Errorf("%s.dhcpOptions.privateOptions[%d].option: %d: must be from 224 to 254", p.path, i, option.Option)
		}
		lease.Private[uint8(option.Option)] = option.Value
	}
	return lease, nil
}
