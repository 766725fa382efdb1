package dhcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/ndp"
)

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd

	protocolUDP    = 17
	protocolICMPv6 = 58

	serverPort4, clientPort4 = 67, 68
	serverPort6, clientPort6 = 547, 546

	ethernetHeader = 14
	ipv4Header     = 20
	ipv6Header     = 40
	udpHeader      = 8
)

type packet struct {
	mac      net.HardwareAddr
	source   netip.Addr
	protocol byte
	// port is the UDP destination; payload is UDP's, or the whole ICMPv6 message.
	port    uint16
	payload []byte
}

var errNotForUs = errors.New("no packet for this server")

// Checksums are ignored: a guest's virtio-net leaves them to hardware that does not exist.
func parse(frame []byte) (packet, error) {
	if len(frame) < ethernetHeader {
		return packet{}, errNotForUs
	}
	p := packet{mac: net.HardwareAddr(bytes.Clone(frame[6:12]))}
	var rest []byte
	switch binary.BigEndian.Uint16(frame[12:14]) {
	case etherIPv4:
		rest = p.parse4(frame[ethernetHeader:])
	case etherIPv6:
		rest = p.parse6(frame[ethernetHeader:])
	}
	if rest == nil {
		return packet{}, errNotForUs
	}
	if p.protocol == protocolICMPv6 {
		p.payload = rest
		return p, nil
	}
	if p.protocol != protocolUDP || len(rest) < udpHeader {
		return packet{}, errNotForUs
	}
	p.port = binary.BigEndian.Uint16(rest[2:4])
	length := int(binary.BigEndian.Uint16(rest[4:6]))
	if length < udpHeader || length > len(rest) {
		return packet{}, errNotForUs
	}
	p.payload = rest[udpHeader:length]
	return p, nil
}

// parse4 returns the IPv4 payload, nil for a fragment or garbage.
func (p *packet) parse4(b []byte) []byte {
	if len(b) < ipv4Header || b[0]>>4 != 4 {
		return nil
	}
	header := int(b[0]&0x0f) * 4
	total := int(binary.BigEndian.Uint16(b[2:4]))
	fragment := binary.BigEndian.Uint16(b[6:8]) & 0x3fff
	if header < ipv4Header || total < header || total > len(b) || fragment != 0 {
		return nil
	}
	p.source = netip.AddrFrom4([4]byte(b[12:16]))
	p.protocol = b[9]
	return b[header:total]
}

// Neither DHCPv6 nor a router solicitation has extension headers.
func (p *packet) parse6(b []byte) []byte {
	if len(b) < ipv6Header || b[0]>>4 != 6 {
		return nil
	}
	length := int(binary.BigEndian.Uint16(b[4:6]))
	if ipv6Header+length > len(b) {
		return nil
	}
	p.source = netip.AddrFrom16([16]byte(b[8:24]))
	p.protocol = b[6]
	return b[ipv6Header : ipv6Header+length]
}

type endpoint struct {
	mac  net.HardwareAddr
	addr netip.Addr
	port uint16
}

// All checksums are filled in: some DHCP clients read raw frames and drop those without.
func udpFrame(from, to endpoint, payload []byte) []byte {
	datagram := make([]byte, 0, udpHeader+len(payload))
	datagram = binary.BigEndian.AppendUint16(datagram, from.port)
	datagram = binary.BigEndian.AppendUint16(datagram, to.port)
	datagram = binary.BigEndian.AppendUint16(datagram, uint16(udpHeader+len(payload)))
	datagram = append(datagram, 0, 0)
	datagram = append(datagram, payload...)
	pseudo := append(from.addr.AsSlice(), to.addr.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(datagram)))
	pseudo = append(pseudo, 0, 0, 0, protocolUDP)
	checksum := ^sum(sum(0, pseudo), datagram)
	if checksum == 0 {
		checksum = 0xffff // zero would mean no checksum
	}
	binary.BigEndian.PutUint16(datagram[6:], checksum)
	return ipFrame(from, to, protocolUDP, datagram)
}

func neighborFrame(from, to endpoint, message ndp.Message) ([]byte, error) {
	body, err := ndp.MarshalMessageChecksum(message, from.addr, to.addr)
	if err != nil {
		return nil, fmt.Errorf("encoding a %s: %w", message.Type(), err)
	}
	return ipFrame(from, to, protocolICMPv6, body), nil
}

func ipFrame(from, to endpoint, protocol byte, body []byte) []byte {
	frame := append(append([]byte{}, to.mac...), from.mac...)
	if from.addr.Is4() {
		frame = binary.BigEndian.AppendUint16(frame, etherIPv4)
		header := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0} // version 4, don't fragment, 64 hops
		header = append(append(header, from.addr.AsSlice()...), to.addr.AsSlice()...)
		binary.BigEndian.PutUint16(header[2:], uint16(ipv4Header+len(body)))
		binary.BigEndian.PutUint16(header[10:], ^sum(0, header))
		return append(append(frame, header...), body...)
	}
	frame = binary.BigEndian.AppendUint16(frame, etherIPv6)
	header := []byte{0x60, 0, 0, 0, 0, 0, protocol, ndp.HopLimit}
	header = append(append(header, from.addr.AsSlice()...), to.addr.AsSlice()...)
	binary.BigEndian.PutUint16(header[4:], uint16(len(body)))
	return append(append(frame, header...), body...)
}

// sum is the one's complement sum of RFC 1071.
func sum(start uint16, data []byte) uint16 {
	total := uint32(start)
	for len(data) > 1 {
		total += uint32(binary.BigEndian.Uint16(data))
		data = data[2:]
	}
	if len(data) == 1 {
		total += uint32(data[0]) << 8
	}
	for total > 0xffff {
		total = total&0xffff + total>>16
	}
	return uint16(total)
}
