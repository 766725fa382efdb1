package dhcp

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/insomniacslk/dhcp/rfc1035label"
)

// answer6 returns the answer to a DHCPv6 message, nil when it deserves none.
// The lease must have an IPv6 part. The frame's sender identifies the client.
func (l *Lease) answer6(message *dhcpv6.Message) (*dhcpv6.Message, error) {
	self := &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: l.ServerMAC}
	if chosen := message.Options.ServerID(); chosen != nil && !chosen.Equal(self) {
		return nil, nil // the guest takes another server's offer
	}
	modifiers := []dhcpv6.Modifier{dhcpv6.WithServerID(self)}
	if asked := message.Options.OneIANA(); asked != nil {
		modifiers = append(modifiers,
			dhcpv6.WithIAID(asked.IaId),
			dhcpv6.WithIANA(dhcpv6.OptIAAddress{
				IPv6Addr:          ip(l.IPv6.Address),
				PreferredLifetime: forever,
				ValidLifetime:     forever,
			}))
	}
	if len(l.IPv6.DNS) > 0 {
		modifiers = append(modifiers, dhcpv6.WithDNS(ips(l.IPv6.DNS)...))
	}
	if len(l.Search) > 0 {
		modifiers = append(modifiers, dhcpv6.WithDomainSearchList(l.Search...))
	}
	switch message.MessageType {
	case dhcpv6.MessageTypeSolicit:
		if message.GetOneOption(dhcpv6.OptionRapidCommit) == nil {
			return dhcpv6.NewAdvertiseFromSolicit(message, modifiers...)
		}
		return dhcpv6.NewReplyFromMessage(message, append(modifiers, dhcpv6.WithRapidCommit)...)
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRenew,
		dhcpv6.MessageTypeRebind, dhcpv6.MessageTypeInformationRequest, dhcpv6.MessageTypeRelease:
		reply, err := dhcpv6.NewReplyFromMessage(message, modifiers...)
		if err != nil {
			return nil, fmt.Errorf("answering %s: %w", message.MessageType, err)
		}
		return reply, nil
	}
	return nil, nil
}

const (
	// routerLifetime is the longest that RFC 4861 lets a router promise.
	routerLifetime = 9000
	// icmpRouterSolicitation and icmpRouterAdvertisement are ICMPv6 types.
	icmpRouterSolicitation  = 133
	icmpRouterAdvertisement = 134
)

// advertisement is the ICMPv6 message by which the guest learns its router,
// and that its address comes by DHCPv6. Its checksum is still zero.
func (l *Lease) advertisement() []byte {
	const (
		hopLimit           = 64
		managedAndOther    = 0xc0
		optionSourceMAC    = 1
		optionMTU          = 5
		lengthInEightBytes = 1
	)
	message := []byte{icmpRouterAdvertisement, 0, 0, 0, hopLimit, managedAndOther}
	message = binary.BigEndian.AppendUint16(message, routerLifetime)
	message = append(message, make([]byte, 8)...) // reachable time, retransmission timer: unspecified
	message = append(message, optionSourceMAC, lengthInEightBytes)
	message = append(message, l.ServerMAC...)
	message = append(message, optionMTU, lengthInEightBytes, 0, 0)
	return binary.BigEndian.AppendUint32(message, uint32(l.MTU))
}

// allNodes is where advertisements go.
var allNodes = netip.MustParseAddr("ff02::1")

// multicastMAC is the Ethernet address of an IPv6 multicast group.
func multicastMAC(group netip.Addr) net.HardwareAddr {
	b := group.As16()
	return net.HardwareAddr{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

func labels(names []string) *rfc1035label.Labels {
	return &rfc1035label.Labels{Labels: names}
}
