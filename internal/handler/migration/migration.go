// Package migration is the part of a driver by which its guest leaves the node, or comes to it: the
// way to the other node's virt-handler, what that has said, and what this one remembers of a
// migration that it has begun.
//
//	Source: control connection, forwarding of QEMU's streams   (virt-handler at the source)
//	Target: what is expected from the source                   (virt-handler at the target)
//
// It owns connections and facts of one migration each, and ends with it. It must not decide what
// follows from a fact (package switchover does), and knows neither QEMU's monitor nor the API
// server: the driver acts. A virt-handler that has been killed has nothing to find again here; the
// other side tells all of its facts anew.
package migration

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/handler/migrationproxy"
	"drydock.dev/drydock/internal/rules/switchover"
)

// Node is what all migrations of a node share.
type Node struct {
	// TLS is how another node's virt-handler is called (certs.Source.PeerClientConfig).
	TLS func(server, protocol string) *tls.Config
	// Expected are the migrations to this node.
	Expected *migrationproxy.Expectations
	// Address is where other nodes reach this one; empty while they don't.
	Address func() string
}

// Env is what a migration needs of its surroundings.
type Env struct {
	*Node
	// Go runs a goroutine that the owner waits for; it ends with its context.
	Go func(func())
	// Wake is called when there is something to look at.
	Wake func()
	Now  func() time.Time
	Log  logr.Logger
}

// ID names a migration and its VMI.
type ID struct {
	Migration, VMI  types.UID
	Namespace, Name string
}

func (id *ID) header() migrationwire.Header {
	return migrationwire.Header{MigrationUID: string(id.Migration), VMIUID: string(id.VMI), Namespace: id.Namespace, Name: id.Name}
}

// tell has the other side hear a fact; none is nothing.
func tell(facts *migrationproxy.Facts, fact switchover.Fact) {
	if fact != "" {
		facts.Publish(migrationwire.Kind(fact))
	}
}

// Target is what the source of a migration to this node may use.
type Target struct {
	env    Env
	mine   migrationproxy.Facts
	forget func()
	heard  heard
	// unmarked is the driver's: see switchover.TargetFacts.
	unmarked bool
}

// NewTarget lets the source of a migration call, which is on a node. dial connects to the socket on
// which QEMU takes its guest.
func NewTarget(env Env, id ID, node string, dial migrationproxy.Target) *Target {
	t := &Target{env: env, heard: heard{wake: env.Wake, now: env.Now}}
	dial.Facts, dial.Heard = &t.mine, t.heard.add
	t.forget = env.Expected.Expect(migrationproxy.Expected{
		MigrationUID: string(id.Migration), VMIUID: string(id.VMI), Namespace: id.Namespace, Name: id.Name,
		SourceNode: node, Target: dial,
	})
	return t
}

// Close ends all of the source's connections.
func (t *Target) Close() { t.forget() }

// Tell has the source hear a fact.
func (t *Target) Tell(fact switchover.Fact) { tell(&t.mine, fact) }

// Unrun notes that QEMU was seen without its ran marker, or that the marker is about to be set.
func (t *Target) Unrun(unmarked bool) { t.unmarked = unmarked }

// Fill adds to the facts at the target what is known here.
func (t *Target) Fill(f *switchover.TargetFacts) {
	f.Released, f.Unmarked = t.heard.has(switchover.Released), t.unmarked
}

// Source is a migration away from this node.
type Source struct {
	env    Env
	out    *migrationproxy.Outgoing
	mine   migrationproxy.Facts
	heard  heard
	ctx    context.Context
	cancel context.CancelFunc

	// What follows is the driver's goroutine's own. forward has QEMU's streams, nil before the
	// migration was begun here; progress is what they have brought about. stopped is since when
	// the guest stands still, began when QEMU was told to begin, cause why the migration was
	// canceled, and refused why the guest can't be sent at all.
	forward        *migrationproxy.Forward
	progress       switchover.Progress
	stopped        time.Time
	began          time.Time
	cause, refused string
	// continued means that QEMU was told to hand the guest over.
	continued bool
}

// NewSource calls the virt-handler of the node that a migration goes to, and keeps calling it until
// ctx ends or the Source is closed.
func NewSource(ctx context.Context, env Env, id ID, node, address string) (*Source, error) {
	at, err := migrationwire.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	s := &Source{env: env, heard: heard{wake: env.Wake, now: env.Now}}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.out = &migrationproxy.Outgoing{Address: at, Node: node, Header: id.header(), TLS: env.TLS, Log: env.Log}
	env.Go(func() {
		s.out.Control(s.ctx, migrationproxy.Conversation{Mine: &s.mine, Heard: s.heard.add, Connected: s.heard.connect})
	})
	return s, nil
}

// Close ends all connections.
func (s *Source) Close() { s.cancel() }

// Tell has the target hear a fact.
func (s *Source) Tell(fact switchover.Fact) { tell(&s.mine, fact) }

// Forward passes QEMU's streams on that come from a listener, which it closes in the end. admit
// checks who connects.
func (s *Source) Forward(listener migrationproxy.Listener, f *migrationproxy.Forward) {
	f.Outgoing = s.out
	s.forward = f
	s.env.Go(func() {
		if err := f.Run(s.ctx, listener); err != nil {
			s.env.Log.Info("the streams of a migration have ended", "migration", s.out.Header.MigrationUID, "reason", err.Error())
		}
	})
}

// Forwards reports whether QEMU's streams are passed on.
func (s *Source) Forwards() bool { return s.forward != nil }

// Begins notes that QEMU is about to be told to begin.
func (s *Source) Begins() { s.began = s.env.Now() }

// Continues notes that QEMU was told to hand the guest over.
func (s *Source) Continues() { s.continued = true }

// Continued reports whether QEMU was told so.
func (s *Source) Continued() bool { return s.continued }

// Canceled notes why the migration is canceled; the first reason counts.
func (s *Source) Canceled(reason string) {
	if s.cause == "" {
		s.cause = reason
	}
}

// Refuse notes why the guest can't be sent.
func (s *Source) Refuse(reason string) { s.refused = reason }

// Refused is why the guest can't be sent; empty if it can, as far as is known.
func (s *Source) Refused() string { return s.refused }

// Copied notes what QEMU says of a migration that copies memory.
func (s *Source) Copied(sample switchover.Sample) { s.progress = s.progress.Add(sample) }

// Stands notes whether the guest stands still, and waits for the switchover.
func (s *Source) Stands(still bool) {
	switch {
	case !still:
		s.stopped = time.Time{}
	case s.stopped.IsZero():
		s.stopped = s.env.Now()
	}
}

// Fill adds to the facts at the source what is known here. limits are those of the migration.
func (s *Source) Fill(f *switchover.SourceFacts, limits switchover.Limits) {
	f.Connected = s.heard.connected()
	f.Ready, f.Ran, f.Never = s.heard.has(switchover.Ready), s.heard.has(switchover.Ran), s.heard.has(switchover.Never)
	f.Streams, f.Cause = s.forward != nil, s.cause
	if !s.stopped.IsZero() {
		f.Stopped = s.env.Now().Sub(s.stopped)
	}
	if f.Begun && f.Streams {
		f.Convergence = switchover.DecideConvergence(s.progress, limits)
	}
}
