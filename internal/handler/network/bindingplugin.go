package network

import (
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
)

// setupManaged is for the domainAttachmentType managedTap: it is bridge without DHCP.
func setupManaged(pod Pod, p plan, _ logr.Logger) (Interface, []server, error) {
	made, _, _, err := connectBridge(pod, p)
	return made, nil, err
}

// setupForeign is for the domainAttachmentType tap: a network plugin makes and connects the tap.
func setupForeign(pod Pod, p plan, _ logr.Logger) (Interface, []server, error) {
	nl, err := openNetlink(pod.NetNS)
	if err != nil {
		return Interface{}, nil, err
	}
	defer nl.Close()
	tap, err := p.findTap(nl)
	if err != nil {
		return Interface{}, nil, err
	}
	made := Interface{Name: p.name, Tap: tap.Attrs().Name, MAC: p.mac.String(), MTU: tap.Attrs().MTU, Queues: p.queues, PodInterface: tap.Attrs().Name, Stays: p.stays}
	if outside, err := readLink(nl, p.podInterface); err == nil {
		made.PodInterface, made.IPs, made.Way = p.podInterface, outside.ips(), p.way()
	}
	return made, nil, nil
}

// findTap returns the plugin's tap: beside the pod's interface, or that interface.
func (p *plan) findTap(nl *netlink.Handle) (netlink.Link, error) {
	for _, name := range []string{p.tap, p.podInterface} {
		link, err := nl.LinkByName(name)
		var none netlink.LinkNotFoundError
		switch tun, is := link.(*netlink.Tuntap); {
		case errors.As(err, &none):
		case err != nil:
			return nil, fmt.Errorf("looking for tap %s: %w", name, err)
		case is && tun.Mode == netlink.TUNTAP_MODE_TAP:
			return link, nil
		}
	}
	return nil, fmt.Errorf("%s.binding: the pod has no tap %s, nor is its interface %s a tap: the plugin of the network or of the binding makes it; "+
		"look at its NetworkAttachmentDefinition, and whether Multus called it when the pod was started", p.path, p.tap, p.podInterface)
}
