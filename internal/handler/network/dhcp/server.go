package dhcp

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/mdlayher/ndp"
	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv6"
	"golang.org/x/time/rate"
)

// advertisePeriod is the interval of unsolicited router advertisements, well within routerLifetime.
const advertisePeriod = 10 * time.Minute

// maxFrame exceeds all valid requests. A longer frame is cut off and invalid.
const maxFrame = 4<<10 + ethernetHeader

// A guest sends a few requests at boot and two in a lease's time. Further ones wait in the kernel's queue.
const (
	maxRequests = 20 // in a second
	maxBurst    = 100
)

// Server answers one guest until it is closed.
type Server struct {
	lease Lease
	link  io.ReadWriteCloser
	log   logr.Logger

	pace *rate.Limiter

	ended chan struct{}
	parts sync.WaitGroup
}

// Serve answers the guest at the other end of link, which it owns. link reads and writes one Ethernet frame at a
// time, and its Close must end a Read.
func Serve(link io.ReadWriteCloser, lease Lease, log logr.Logger) *Server {
	s := &Server{lease: lease, link: link, log: log, pace: rate.NewLimiter(maxRequests, maxBurst), ended: make(chan struct{})}
	s.parts.Go(s.listen)
	if lease.IPv6 != nil {
		s.parts.Go(s.advertise)
	}
	return s
}

// Close waits for the server's end.
func (s *Server) Close() {
	close(s.ended)
	_ = s.link.Close()
	s.parts.Wait()
}

func (s *Server) listen() {
	frame := make([]byte, maxFrame)
	for s.await() {
		n, err := s.link.Read(frame)
		if err != nil {
			if !s.over(err) {
				s.log.Error(err, "the guest's DHCP requests can't be read any more")
			}
			return
		}
		answer, err := s.lease.answer(frame[:n])
		if err != nil {
			s.log.V(1).Info("dropped a request of the guest", "reason", err.Error())
			continue
		}
		if answer != nil {
			s.send(answer)
		}
	}
}

func (s *Server) await() bool {
	timer := time.NewTimer(s.pace.Reserve().Delay())
	defer timer.Stop()
	select {
	case <-s.ended:
		return false
	case <-timer.C:
		return true
	}
}

func (s *Server) advertise() {
	frame, err := s.lease.advertisementFrame()
	if err != nil {
		s.log.Error(err, "the guest's router can't be advertised")
		return
	}
	ticker := time.NewTicker(advertisePeriod)
	defer ticker.Stop()
	for {
		s.send(frame)
		select {
		case <-s.ended:
			return
		case <-ticker.C:
		}
	}
}

// A guest without a running QEMU misses the frame and asks later.
func (s *Server) send(frame []byte) {
	if _, err := s.link.Write(frame); err != nil && !s.over(err) {
		s.log.V(1).Info("could not answer the guest", "reason", err.Error())
	}
}

func (s *Server) over(err error) bool {
	select {
	case <-s.ended:
		return true
	default:
		return errors.Is(err, fs.ErrClosed) || errors.Is(err, io.EOF)
	}
}

func (l *Lease) answer(frame []byte) ([]byte, error) {
	request, err := parse(frame)
	if err != nil {
		return nil, err
	}
	if request.mac.String() != l.MAC.String() {
		return nil, fmt.Errorf("the request comes from %s, and this link's guest is %s", request.mac, l.MAC)
	}
	switch {
	case request.protocol == protocolUDP && request.port == serverPort4:
		return l.answerFrame4(request)
	case l.IPv6 == nil:
		return nil, nil
	case request.protocol == protocolUDP && request.port == serverPort6:
		return l.answerFrame6(request)
	case request.protocol == protocolICMPv6 && len(request.payload) > 0 && request.payload[0] == byte(ipv6.ICMPTypeRouterSolicitation):
		return l.advertisementFrame()
	}
	return nil, nil
}

func (l *Lease) answerFrame4(request packet) ([]byte, error) {
	message, err := dhcpv4.FromBytes(request.payload)
	if err != nil {
		return nil, fmt.Errorf("reading a DHCP request: %w", err)
	}
	answer, err := l.answer4(message)
	if err != nil || answer == nil {
		return nil, err
	}
	// The frame goes to the guest's MAC. Its current IP address is the destination only if it already has one.
	to := endpoint{mac: l.MAC, addr: netip.AddrFrom4([4]byte{255, 255, 255, 255}), port: clientPort4}
	if message.IsBroadcast() || answer.MessageType() == dhcpv4.MessageTypeNak {
		to.mac = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	} else if current, ok := netip.AddrFromSlice(message.ClientIPAddr.To4()); ok && !current.IsUnspecified() {
		to.addr = current
	}
	from := endpoint{mac: l.ServerMAC, addr: l.ServerID, port: serverPort4}
	return udpFrame(from, to, answer.ToBytes()), nil
}

func (l *Lease) answerFrame6(request packet) ([]byte, error) {
	message, err := dhcpv6.MessageFromBytes(request.payload)
	if err != nil {
		return nil, fmt.Errorf("reading a DHCPv6 request: %w", err)
	}
	answer, err := l.answer6(message)
	if err != nil || answer == nil {
		return nil, err
	}
	from := endpoint{mac: l.ServerMAC, addr: l.IPv6.Router, port: serverPort6}
	to := endpoint{mac: l.MAC, addr: request.source, port: clientPort6}
	return udpFrame(from, to, answer.ToBytes()), nil
}

func (l *Lease) advertisementFrame() ([]byte, error) {
	from := endpoint{mac: l.ServerMAC, addr: l.IPv6.Router}
	group := allNodes.As16()
	to := endpoint{mac: net.HardwareAddr{0x33, 0x33, group[12], group[13], group[14], group[15]}, addr: allNodes}
	return neighborFrame(from, to, &ndp.RouterAdvertisement{
		CurrentHopLimit: 64, ManagedConfiguration: true, OtherConfiguration: true, RouterLifetime: routerLifetime,
		Options: []ndp.Option{
			&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: l.ServerMAC},
			ndp.NewMTU(uint32(l.MTU)),
		},
	})
}

// Filter returns a socket filter that passes DHCPv4, DHCPv6 and router solicitations.
func Filter() ([]bpf.RawInstruction, error) {
	const (
		etherType    = 12
		protocol4    = ethernetHeader + 9
		fragment4    = ethernetHeader + 6
		nextHeader6  = ethernetHeader + 6
		destination6 = ethernetHeader + ipv6Header + 2
		icmpType6    = ethernetHeader + ipv6Header
	)
	program, err := bpf.Assemble([]bpf.Instruction{
		/* 0 */ bpf.LoadAbsolute{Off: etherType, Size: 2},
		/* 1 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: etherIPv6, SkipTrue: 8},
		/* 2 */ bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: etherIPv4, SkipTrue: 14},
		/* 3 */ bpf.LoadAbsolute{Off: protocol4, Size: 1},
		/* 4 */ bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protocolUDP, SkipTrue: 12},
		/* 5 */ bpf.LoadAbsolute{Off: fragment4, Size: 2},
		/* 6 */ bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipTrue: 10},
		/* 7 */ bpf.LoadMemShift{Off: ethernetHeader},
		/* 8 */ bpf.LoadIndirect{Off: ethernetHeader + 2, Size: 2},
		/* 9 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: serverPort4, SkipTrue: 8, SkipFalse: 7},

		/* 10 */ bpf.LoadAbsolute{Off: nextHeader6, Size: 1},
		/* 11 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: protocolICMPv6, SkipTrue: 3},
		/* 12 */ bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protocolUDP, SkipTrue: 4},
		/* 13 */ bpf.LoadAbsolute{Off: destination6, Size: 2},
		/* 14 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: serverPort6, SkipTrue: 3, SkipFalse: 2},

		/* 15 */ bpf.LoadAbsolute{Off: icmpType6, Size: 1},
		/* 16 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(ipv6.ICMPTypeRouterSolicitation), SkipTrue: 1},

		/* 17 */ bpf.RetConstant{Val: 0},
		/* 18 */ bpf.RetConstant{Val: maxFrame},
	})
	if err != nil {
		return nil, fmt.Errorf("assembling the filter for DHCP requests: %w", err)
	}
	return program, nil
}
