package dhcp

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/mdlayher/ndp"
	"golang.org/x/net/bpf"
)

var (
	guestMAC  = net.HardwareAddr{2, 0, 0, 1, 2, 3}
	serverMAC = net.HardwareAddr{2, 0, 0, 9, 9, 9}
)

func testLease() Lease {
	return Lease{
		MAC: guestMAC, ServerMAC: serverMAC, MTU: 1450,
		ServerID: netip.MustParseAddr("10.0.2.1"), Address: netip.MustParsePrefix("10.0.2.2/24"),
		Routes: []Route{{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.0.2.1")}},
		IPv6:   &Lease6{Address: netip.MustParseAddr("fd10:0:2::2"), Router: netip.MustParseAddr("fe80::1")},
	}
}

func message(t *testing.T, kind dhcpv4.MessageType, modifiers ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(guestMAC), dhcpv4.WithMessageType(kind)}, modifiers...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// routers is the multicast address of routers.
var routers = netip.MustParseAddr("ff02::2")

func toRouters(t testing.TB, message ndp.Message) []byte {
	t.Helper()
	frame, err := neighborFrame(endpoint{mac: guestMAC, addr: netip.MustParseAddr("fe80::2")}, endpoint{mac: serverMAC, addr: routers}, message)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// The whole frame is compared, checksum included.
func TestASolicitationIsAnsweredByAnAdvertisement(t *testing.T) {
	const want = "333300000001" + "020000090909" + "86dd" + // Ethernet: to all nodes
		"6000000000203aff" + "fe800000000000000000000000000001" + "ff020000000000000000000000000001" + // IPv6
		"86000179" + "40c02328" + "00000000" + "00000000" + // 64 hops, addresses by DHCPv6, 9000 s
		"0101020000090909" + "05010000000005aa" // the router's MAC, an MTU of 1450
	lease := testLease()
	answer, err := lease.answer(toRouters(t, &ndp.RouterSolicitation{}))
	if got := hex.EncodeToString(answer); err != nil || got != want {
		t.Errorf("the answer is\n%s (%v), want\n%s", got, err, want)
	}
}

func TestAnswers(t *testing.T) {
	address := func(s string) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(s))) }
	server := func(s string) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.ParseIP(s))) }
	for name, c := range map[string]struct {
		request *dhcpv4.DHCPv4
		want    dhcpv4.MessageType
		yours   string
	}{
		"discovery":                        {message(t, dhcpv4.MessageTypeDiscover), dhcpv4.MessageTypeOffer, "10.0.2.2"},
		"request of the offer":             {message(t, dhcpv4.MessageTypeRequest, address("10.0.2.2"), server("10.0.2.1")), dhcpv4.MessageTypeAck, "10.0.2.2"},
		"request of another's offer":       {message(t, dhcpv4.MessageTypeRequest, address("10.0.9.9"), server("10.0.9.1")), dhcpv4.MessageTypeNone, ""},
		"reboot with its address":          {message(t, dhcpv4.MessageTypeRequest, address("10.0.2.2")), dhcpv4.MessageTypeAck, "10.0.2.2"},
		"reboot with a snapshot's address": {message(t, dhcpv4.MessageTypeRequest, address("10.0.2.9")), dhcpv4.MessageTypeNak, "0.0.0.0"},
		"renewal":                          {message(t, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(net.IP{10, 0, 2, 2})), dhcpv4.MessageTypeAck, "10.0.2.2"},
		"information":                      {message(t, dhcpv4.MessageTypeInform, dhcpv4.WithClientIP(net.IP{10, 0, 2, 2})), dhcpv4.MessageTypeAck, "0.0.0.0"},
		"release":                          {message(t, dhcpv4.MessageTypeRelease), dhcpv4.MessageTypeNone, ""},
		"decline":                          {message(t, dhcpv4.MessageTypeDecline), dhcpv4.MessageTypeNone, ""},
		"another guest's discovery":        {message(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithHwAddr(serverMAC)), dhcpv4.MessageTypeNone, ""},
	} {
		lease := testLease()
		answer, err := lease.answer4(c.request)
		switch {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case answer == nil && c.want != dhcpv4.MessageTypeNone:
			t.Errorf("%s: no answer, want %s", name, c.want)
		case answer != nil && (answer.MessageType() != c.want || answer.YourIPAddr.String() != c.yours):
			t.Errorf("%s: answered %s with %s, want %s with %s", name, answer.MessageType(), answer.YourIPAddr, c.want, c.yours)
		case answer != nil && answer.MessageType() == dhcpv4.MessageTypeAck && c.yours != "0.0.0.0" &&
			!bytes.Equal(answer.Options.Get(dhcpv4.OptionIPAddressLeaseTime), []byte{255, 255, 255, 255}):
			t.Errorf("%s: the lease ends after %v", name, answer.Options.Get(dhcpv4.OptionIPAddressLeaseTime))
		}
	}
}

func TestClasslessRoutes(t *testing.T) {
	route := func(to, via string) Route {
		r := Route{Destination: netip.MustParsePrefix(to)}
		if via != "" {
			r.Gateway = netip.MustParseAddr(via)
		}
		return r
	}
	for name, c := range map[string]struct {
		address string
		routes  []Route
		want    string
	}{
		"a default gateway says everything": {"10.0.2.2/24", []Route{route("0.0.0.0/0", "10.0.2.1")}, ""},
		"no routes at all":                  {"10.0.2.2/24", nil, ""},
		"a second route repeats the first": {
			"10.1.0.5/24", []Route{route("0.0.0.0/0", "10.1.0.1"), route("10.96.0.0/12", "10.1.0.9")},
			"0.0.0.0/0 via 10.1.0.1, 10.96.0.0/12 via 10.1.0.9",
		},
		"a gateway beyond the network is on the link": {
			"10.1.0.5/32", []Route{route("0.0.0.0/0", "169.254.1.1"), route("10.2.0.0/16", "169.254.1.1")},
			"169.254.1.1/32 via 0.0.0.0, 0.0.0.0/0 via 169.254.1.1, 10.2.0.0/16 via 169.254.1.1",
		},
		"a route on the link, no default": {"10.1.0.5/24", []Route{route("10.9.0.0/16", "")}, "10.9.0.0/16 via 0.0.0.0"},
	} {
		lease := Lease{Address: netip.MustParsePrefix(c.address), Routes: c.routes}
		var got []string
		for _, r := range lease.classlessRoutes() {
			got = append(got, r.Dest.String()+" via "+r.Router.String())
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: got %s, want %s", name, strings.Join(got, ", "), c.want)
		}
	}
}

func TestDHCPv6Answers(t *testing.T) {
	for name, c := range map[string]struct {
		modifiers []dhcpv6.Modifier
		kind      dhcpv6.MessageType
		want      dhcpv6.MessageType
	}{
		"solicitation":             {nil, dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeAdvertise},
		"solicitation, rapid":      {[]dhcpv6.Modifier{dhcpv6.WithRapidCommit}, dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeReply},
		"request":                  {nil, dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeReply},
		"request to someone else":  {[]dhcpv6.Modifier{dhcpv6.WithServerID(&dhcpv6.DUIDLL{LinkLayerAddr: guestMAC})}, dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeNone},
		"renewal":                  {nil, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeReply},
		"a message of other kinds": {nil, dhcpv6.MessageTypeReconfigure, dhcpv6.MessageTypeNone},
	} {
		lease := testLease()
		request, err := dhcpv6.NewSolicit(guestMAC, c.modifiers...)
		if err != nil {
			t.Fatal(err)
		}
		request.MessageType = c.kind
		answer, err := lease.answer6(request)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if answer == nil {
			if c.want != dhcpv6.MessageTypeNone {
				t.Errorf("%s: no answer, want %s", name, c.want)
			}
			continue
		}
		iana := answer.Options.OneIANA()
		if answer.MessageType != c.want || iana == nil || iana.IaId != request.Options.OneIANA().IaId ||
			iana.Options.OneAddress().IPv6Addr.String() != "fd10:0:2::2" {
			t.Errorf("%s: want %s, got\n%s", name, c.want, answer.Summary())
		}
	}
}

// Generated frames must be parseable, and their checksums must be right.
func TestFramesAreWhole(t *testing.T) {
	for _, ends := range [][2]string{{"10.0.2.1", "255.255.255.255"}, {"fe80::1", "fe80::2"}} {
		for length := range 5 {
			payload := []byte("abcd")[:length]
			from := endpoint{serverMAC, netip.MustParseAddr(ends[0]), serverPort4}
			to := endpoint{guestMAC, netip.MustParseAddr(ends[1]), clientPort4}
			frame := udpFrame(from, to, payload)
			p, err := parse(frame)
			if err != nil || p.source != from.addr || p.port != to.port || !bytes.Equal(p.payload, payload) || p.mac.String() != serverMAC.String() {
				t.Errorf("%v became %+v, %v", ends, p, err)
			}
			header := ipv6Header
			if from.addr.Is4() {
				header = ipv4Header
				if sum(0, frame[ethernetHeader:ethernetHeader+header]) != 0xffff {
					t.Error("the header's checksum does not hold")
				}
			}
			body := frame[ethernetHeader+header:]
			pseudo := append(from.addr.AsSlice(), to.addr.AsSlice()...)
			pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(body)))
			pseudo = append(pseudo, 0, 0, 0, protocolUDP)
			if sum(sum(0, pseudo), body) != 0xffff {
				t.Errorf("%v: the checksum of %q does not hold", ends, payload)
			}
		}
	}
}

func TestFilterLetsRequestsThroughAndNothingElse(t *testing.T) {
	raw, err := Filter()
	if err != nil {
		t.Fatal(err)
	}
	instructions, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the filter has instructions that nobody knows")
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	four := func(port uint16) []byte {
		return udpFrame(endpoint{guestMAC, netip.MustParseAddr("0.0.0.0"), 68}, endpoint{serverMAC, netip.MustParseAddr("255.255.255.255"), port}, []byte("x"))
	}
	six := func(port uint16) []byte {
		return udpFrame(endpoint{guestMAC, netip.MustParseAddr("fe80::2"), 546}, endpoint{serverMAC, netip.MustParseAddr("ff02::1:2"), port}, []byte("x"))
	}
	fragment := four(67)
	fragment[ethernetHeader+7] = 1
	tcp := four(67)
	tcp[ethernetHeader+9] = 6
	for name, c := range map[string]struct {
		frame []byte
		want  bool
	}{
		"DHCPv4":                  {four(67), true},
		"DHCPv6":                  {six(547), true},
		"router solicitation":     {toRouters(t, &ndp.RouterSolicitation{}), true},
		"DNS":                     {four(53), false},
		"DNS over IPv6":           {six(53), false},
		"neighbor solicitation":   {toRouters(t, &ndp.NeighborSolicitation{TargetAddress: routers}), false},
		"a fragment":              {fragment, false},
		"TCP to the same port":    {tcp, false},
		"ARP":                     {append(make([]byte, 12), 8, 6, 0, 1), false},
		"less than it looks at":   {four(67)[:30], false},
		"nothing that has a type": {make([]byte, 10), false},
	} {
		n, err := vm.Run(c.frame)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if (n > 0) != c.want {
			t.Errorf("%s: let through %d bytes, want any: %v", name, n, c.want)
		}
	}
}

// A guest may write anything on its link.
func FuzzAnswer(f *testing.F) {
	discover, err := dhcpv4.NewDiscovery(guestMAC)
	if err != nil {
		f.Fatal(err)
	}
	solicit, err := dhcpv6.NewSolicit(guestMAC)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(udpFrame(endpoint{guestMAC, netip.MustParseAddr("0.0.0.0"), 68}, endpoint{serverMAC, netip.MustParseAddr("255.255.255.255"), 67}, discover.ToBytes()))
	f.Add(udpFrame(endpoint{guestMAC, netip.MustParseAddr("fe80::2"), 546}, endpoint{serverMAC, netip.MustParseAddr("ff02::1:2"), 547}, solicit.ToBytes()))
	f.Add(toRouters(f, &ndp.RouterSolicitation{}))
	f.Fuzz(func(t *testing.T, frame []byte) {
		lease := testLease()
		answer, err := lease.answer(frame)
		if err != nil && answer != nil {
			t.Errorf("an answer and an error: %v", err)
		}
		if answer != nil && !bytes.Equal(answer[6:12], serverMAC) {
			t.Errorf("the answer comes from %x", answer[6:12])
		}
	})
}
