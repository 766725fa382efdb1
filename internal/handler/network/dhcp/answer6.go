package dhcp

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

// answer6 returns nil for a message that gets no answer. The lease must have an IPv6 part. The frame's sender
// identifies the client.
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

// routerLifetime is the maximum of RFC 4861.
const routerLifetime = 9000 * time.Second

var allNodes = netip.MustParseAddr("ff02::1")
