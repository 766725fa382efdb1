package migrationproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/go-logr/logr"

	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/rules/cluster/nodecert"
	"drydock.dev/drydock/internal/rules/object/backoff"
)

// Outgoing connects a source to its target. Only Limits are optional.
type Outgoing struct {
	// Node must answer at Address, the target's published one (migrationwire.ParseAddress).
	Address netip.AddrPort
	Node    string
	// Header names the migration. Dial fills in the version, the supported copies and the Channel.
	Header migrationwire.Header
	// TLS is certs.Source.PeerClientConfig.
	TLS    func(server, protocol string) *tls.Config
	Log    logr.Logger
	Limits Limits
}

// Refusal is the target's refusal.
type Refusal struct {
	Node   string
	Reason error
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("the virt-handler on node %s refuses: %v", r.Node, r.Reason)
}

// Dial connects to the target within Limits.Greeting.
func (o *Outgoing) Dial(ctx context.Context, channel migrationwire.Channel) (*peerConn, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Limits.greeting())
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", o.Address.String())
	if err != nil {
		return nil, fmt.Errorf("calling the virt-handler on node %s: %w", o.Node, err)
	}
	secured, err := o.greet(ctx, conn, channel)
	if err != nil {
		_ = conn.Close() // no data on it counts
		var refusal *Refusal
		if errors.As(err, &refusal) {
			return nil, err
		}
		return nil, fmt.Errorf("calling the virt-handler on node %s at %s: %w", o.Node, o.Address, err)
	}
	return secured, nil
}

func (o *Outgoing) greet(ctx context.Context, conn net.Conn, channel migrationwire.Channel) (*peerConn, error) {
	if err := tune(conn); err != nil {
		return nil, err
	}
	secured := newClient(conn, o.TLS(nodecert.DNSName(o.Node), migrationwire.Protocol))
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	header := o.Header
	header.Version, header.Channel, header.CopiesClaims, header.CopiesPlugged = migrationwire.Version, channel, true, true
	if err := migrationwire.Write(secured, header); err != nil {
		return nil, err
	}
	var answer migrationwire.Answer
	if err := migrationwire.Read(secured, &answer); err != nil {
		return nil, fmt.Errorf("it does not answer: %w", err)
	}
	if err := answer.Err(); err != nil {
		return nil, &Refusal{Node: o.Node, Reason: err}
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	return secured, nil
}

const (
	firstRedial   = 100 * time.Millisecond
	longestRedial = 2 * time.Second
)

// Conversation is the source's side of a control connection.
type Conversation struct {
	Mine *Facts
	// Each connection sends all of Mine, and calls Heard with each fact of the target.
	Heard func(migrationwire.Kind)
	// HeardAgreed gets the target's transport; may be nil.
	HeardAgreed func(migrationwire.Transport)
	// Connected is called when a connection begins and when it has ended; may be nil. None of the functions may block.
	Connected func(bool)
}

// Control keeps a control connection open until ctx ends.
func (o *Outgoing) Control(ctx context.Context, c Conversation) {
	delays := backoff.Doubling(firstRedial, longestRedial)
	last := ""
	for ctx.Err() == nil {
		began, err := o.converse(ctx, c)
		if ctx.Err() != nil {
			return
		}
		if began {
			delays, last = backoff.Doubling(firstRedial, longestRedial), ""
		}
		if text := err.Error(); text != last {
			o.Log.Info("there is no control connection to the migration's target; it is called again",
				"migration", o.Header.MigrationUID, "node", o.Node, "reason", text)
			last = text
		}
		sleep(ctx, delays.Step())
	}
}

func (o *Outgoing) converse(ctx context.Context, c Conversation) (began bool, err error) {
	conn, err := o.Dial(ctx, migrationwire.Control)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }() // it has ended already
	if c.Connected != nil {
		c.Connected(true)
		defer c.Connected(false)
	}
	t := &controlConnection{conn: conn, limits: o.Limits, migration: o.Header.MigrationUID, mine: c.Mine, other: migrationwire.Target, onFact: c.Heard, onTransport: c.HeardAgreed}
	return true, t.run(ctx)
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
