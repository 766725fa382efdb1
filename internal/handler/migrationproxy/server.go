package migrationproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/greeting"
	"drydock.dev/drydock/internal/rules/cluster/nodecert"
)

// Server accepts the migrations to this node.
type Server struct {
	// Limits must be set before Run and Serve.
	Limits Limits

	registry  Registry
	tls       *tls.Config
	address   func() (netip.Addr, error)
	port      uint16
	relisten  time.Duration
	log       *limitedLog
	greetings greeting.Rooms
	calls     calls
	published atomic.Pointer[netip.AddrPort]
}

// NewServer returns a Server. config is certs.Source.PeerServerConfig of migrationwire.Protocol.
func NewServer(registry Registry, config *tls.Config, address func() (netip.Addr, error), log logr.Logger) *Server {
	return &Server{
		registry: registry, tls: config, address: address, port: migrationwire.Port, relisten: relisten, log: newLimitedLog(log),
	}
}

const relisten = 10 * time.Second

// Address returns this node's address for status.migrationState.targetNodeAddress, empty without a listener.
func (s *Server) Address() string {
	if address := s.published.Load(); address != nil {
		return address.String()
	}
	return ""
}

// Run listens until ctx ends. It retries after failures: the node's guests do not depend on it. It is a
// controller-runtime Runnable.
func (s *Server) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticker := time.NewTicker(s.relisten)
	defer ticker.Stop()
	var listener net.Listener
	defer func() { s.closeListener(listener) }()
	for {
		listener = s.updateListener(ctx, listener, func(l net.Listener) {
			running.Go(func() { s.Serve(ctx, l) })
		})
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// updateListener listens on this node's address, unless current does.
func (s *Server) updateListener(ctx context.Context, current net.Listener, serve func(net.Listener)) net.Listener {
	wanted, err := s.address()
	if err != nil {
		s.log.info("migrations to this node have no address", "reason", err.Error())
		return current
	}
	address := netip.AddrPortFrom(wanted, s.port)
	if current != nil && s.Address() == address.String() {
		return current
	}
	next, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address.String())
	if err != nil {
		s.log.info("migrations to this node can't be listened for; it is tried again", "address", address.String(), "reason", err.Error())
		return current
	}
	s.closeListener(current)
	s.published.Store(&address)
	serve(next)
	return next
}

func (s *Server) closeListener(listener net.Listener) {
	if listener != nil {
		s.published.Store(nil)
		_ = listener.Close() // its connections continue
	}
}

// Serve returns when the listener or ctx, and the last connection, have ended.
func (s *Server) Serve(ctx context.Context, listener net.Listener) {
	var running sync.WaitGroup
	defer running.Wait()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			if err == nil {
				_ = conn.Close() // it came too late
			}
			return
		}
		if err != nil {
			s.log.info("a migration's connection can't be taken", "reason", err.Error())
			sleep(ctx, time.Second)
			continue
		}
		caller := s.greetings.Enter(conn.RemoteAddr(), func() { _ = conn.Close() })
		running.Go(func() {
			defer conn.Close()
			c := &call{conn: newServer(conn, s.tls), log: s.log.log}
			if err := s.handle(ctx, conn, caller, c); err != nil && ctx.Err() == nil {
				s.log.infoTo(c.log, "a migration's connection has ended", "from", conn.RemoteAddr().String(), "reason", err.Error())
			}
		})
	}
}

func (s *Server) handle(ctx context.Context, conn net.Conn, caller *greeting.Caller, c *call) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := s.begin(ctx, conn, caller, c); err != nil {
		return err
	}
	defer c.end()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		select {
		case <-c.target.Done:
			cancel()
		case <-ctx.Done():
		}
	})
	err := c.serve(ctx)
	if ctx.Err() != nil {
		return nil // nobody needs it any more
	}
	return err
}

type call struct {
	header migrationwire.Header
	node   string
	conn   *peerConn
	target Target
	// log is the target's once it is known.
	log   logr.Logger
	serve func(ctx context.Context) error
	end   func()
}

// begin authenticates the caller, reads its header and answers.
func (s *Server) begin(ctx context.Context, conn net.Conn, caller *greeting.Caller, c *call) (err error) {
	defer caller.Leave()
	deadline := time.Now().Add(s.Limits.greeting())
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	_ = conn.SetDeadline(deadline)
	if err := tune(conn); err != nil {
		return err
	}
	if err := c.conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("the caller is not known: %w", err)
	}
	if c.node, err = nodecert.Holder(c.conn.ConnectionState().PeerCertificates[0]); err != nil {
		return fmt.Errorf("the caller is not known: %w", err)
	}
	if !caller.Proven() {
		return errors.New("the connection has made room for newer ones")
	}
	if err := migrationwire.Read(c.conn, &c.header); err != nil {
		return fmt.Errorf("node %s does not say what it wants: %w", c.node, err)
	}
	if err := s.admit(ctx, c); err != nil {
		refused := fmt.Errorf("node %s is refused: %w", c.node, err)
		return errors.Join(refused, migrationwire.Write(c.conn, migrationwire.Refuse(err)))
	}
	if err := migrationwire.Write(c.conn, migrationwire.Answer{Version: migrationwire.Version}); err != nil {
		c.end()
		return fmt.Errorf("answering node %s: %w", c.node, err)
	}
	_ = conn.SetDeadline(time.Time{})
	return nil
}

func (s *Server) admit(ctx context.Context, c *call) (err error) {
	if err := c.header.Check(); err != nil {
		return err
	}
	if c.target, err = s.registry.Incoming(c.header, c.node); err != nil {
		return err
	}
	if c.target.Log.GetSink() != nil {
		c.log = c.target.Log
	}
	if c.target.DialDisks != nil && c.header.Version < migrationwire.CopiesDisks {
		// Such a source would hand the guest over without its disks.
		return errors.New("the guest's disks move with it, which the source's virt-handler is too old for")
	}
	if c.target.Claims && !c.header.CopiesClaims || c.target.Plugged && !c.header.CopiesPlugged {
		return errors.New("disks of the guest are to be copied to other claims, which the source's virt-handler is too old for")
	}
	if c.header.Channel == migrationwire.Control {
		s.control(c)
		return nil
	}
	return s.stream(ctx, c)
}

// control replaces an existing control connection: the same source has reconnected.
func (s *Server) control(c *call) {
	replaced, end := s.calls.control(c.header.MigrationUID, c.target.Connected)
	c.end = end
	t := &controlConnection{
		conn: c.conn, limits: s.Limits, migration: c.header.MigrationUID, mine: c.target.Facts, other: migrationwire.Source,
		onFact: c.target.Heard, onDisks: c.target.HeardDisks, onTransport: c.target.HeardOffer,
	}
	if c.header.Version < migrationwire.AgreesTransport && t.onTransport != nil {
		t.onTransport(migrationwire.Transport{}) // such a source never offers one
	}
	c.serve = func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stop := context.AfterFunc(replaced, cancel)
		defer stop()
		if err := t.run(ctx); replaced.Err() == nil {
			return fmt.Errorf("the control connection of migration %s from node %s: %w", c.header.MigrationUID, c.node, err)
		}
		return nil
	}
}

func (s *Server) stream(ctx context.Context, c *call) error {
	dial := c.target.Dial
	if c.header.Channel == migrationwire.Disks {
		dial = c.target.DialDisks
	}
	if dial == nil {
		return errors.New("the migration copies no disks")
	}
	end, err := s.calls.stream(c.header.MigrationUID, c.header.Channel)
	if err != nil {
		return err
	}
	qemu, err := dial(ctx)
	if err != nil {
		end()
		return fmt.Errorf("the migration's QEMU can't be reached: %w", err)
	}
	c.end = func() {
		_ = qemu.Close() // it is already closed unless nothing was passed on
		end()
	}
	c.serve = func(ctx context.Context) error {
		var in, out atomic.Int64
		if err := (&stream{qemu: qemu, peer: c.conn, fromQEMU: &out, fromPeer: &in}).run(ctx); err != nil {
			return fmt.Errorf("a stream of migration %s from node %s, after %d bytes: %w", c.header.MigrationUID, c.node, in.Load(), err)
		}
		return nil
	}
	return nil
}
