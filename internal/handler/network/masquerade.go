package network

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/handler/network/dhcp"
)

// routerMAC is the same in every pod, for migrated guests.
var routerMAC = net.HardwareAddr{0x02, 0x00, 0x0a, 0x00, 0x02, 0x01}

// routerLinkLocal is the guest's IPv6 router, whose address must be link-local.
var routerLinkLocal = netip.MustParseAddr("fe80::1")

// setupMasquerade puts the guest into a private network behind the pod, its router.
//
//	eth0 (pod's address) --- nftables --- bridge (router) --- tap --- guest
func setupMasquerade(pod Pod, p plan, log logr.Logger) (Interface, []server, error) {
	nl, err := openNetlink(pod.NetNS)
	if err != nil {
		return Interface{}, nil, err
	}
	defer nl.Close()
	outside, err := readLink(nl, p.podInterface)
	if err != nil {
		return Interface{}, nil, err
	}
	if len(outside.addresses) == 0 {
		return Interface{}, nil, fmt.Errorf("the pod's interface %s has no address", p.podInterface)
	}
	bridge, err := ensureBridge(pod.NetNS, nl, p.bridge, routerMAC, outside.mtu)
	if err != nil {
		return Interface{}, nil, err
	}
	tap, err := ensureTap(pod, nl, p, bridge, outside.mtu)
	if err != nil {
		return Interface{}, nil, err
	}
	has6 := outside.address6().IsValid()
	if err := inside(pod.NetNS, func() error { return becomeRouter(p, has6) }); err != nil {
		return Interface{}, nil, err
	}
	if err := addRouterAddresses(nl, bridge, p, has6); err != nil {
		return Interface{}, nil, err
	}
	if err := translate(pod.NetNS, p, outside); err != nil {
		return Interface{}, nil, err
	}
	if err := deleteUntranslated(pod.NetNS, outside); err != nil {
		// Other senders reach the guest.
		log.Info("whoever has sent to the guest before its network was there may have to change its port", "reason", err.Error())
	}
	lease, err := p.lease(pod, p.mac, outside.mtu)
	if err != nil {
		return Interface{}, nil, err
	}
	lease.ServerID = p.subnet4.router
	if outside.address4().IsValid() {
		lease.Address = p.subnet4.guestPrefix()
		lease.Routes = []dhcp.Route{{Destination: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Gateway: p.subnet4.router}}
	}
	if has6 {
		lease.IPv6 = &dhcp.Lease6{
			Address: p.subnet6.guest, Router: routerLinkLocal,
			DNS: parseResolvConf(pod.ResolvConf).servers6,
		}
	}
	frames, err := openFrames(pod.NetNS, tap)
	if err != nil {
		return Interface{}, nil, err
	}
	made := Interface{
		Name: p.name, Tap: p.tap, MAC: p.mac.String(), MTU: outside.mtu, Queues: p.queues,
		IPs: outside.ips(), Way: InPod, PodInterface: p.podInterface,
	}
	return made, []server{dhcp.Serve(frames, lease, log)}, nil
}

// becomeRouter sets sysctls in the network namespace of the calling thread.
func becomeRouter(p plan, has6 bool) error {
	settings := [][2]string{
		{"ipv4/ip_forward", "1"},
		// A connection to 127.0.0.1 in the pod goes to the guest, whose answer must be let in.
		{"ipv4/conf/" + p.bridge + "/route_localnet", "1"},
		// The guest must not be redirected to itself.
		{"ipv4/conf/all/send_redirects", "0"},
		{"ipv4/conf/" + p.bridge + "/send_redirects", "0"},
	}
	if has6 {
		settings = append(settings, [2]string{"ipv6/conf/all/forwarding", "1"})
	} else if err := withoutIPv6(p.bridge); err != nil {
		return err
	}
	for _, s := range settings {
		if err := setSysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	return nil
}

func addRouterAddresses(nl *netlink.Handle, bridge netlink.Link, p plan, has6 bool) error {
	prefixes := []netip.Prefix{p.subnet4.routerPrefix()}
	if has6 {
		prefixes = append(prefixes, p.subnet6.routerPrefix(), netip.PrefixFrom(routerLinkLocal, 64))
	}
	for _, prefix := range prefixes {
		address := &netlink.Addr{IPNet: &net.IPNet{
			IP:   prefix.Addr().AsSlice(),
			Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen()),
		}}
		if prefix.Addr().Is6() {
			// Nobody else here could have the address.
			address.Flags = unix.IFA_F_NODAD
		}
		if err := nl.AddrReplace(bridge, address); err != nil {
			return fmt.Errorf("giving %s to bridge %s: %w", prefix, bridge.Attrs().Name, err)
		}
	}
	return nil
}
