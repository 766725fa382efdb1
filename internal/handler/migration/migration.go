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
	"net"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/handler/migrationproxy"
	"drydock.dev/drydock/internal/rules/switchover"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// Node is what all migrations of a node share.
type Node struct {
	// TLS is how another node's virt-handler is called (certs.Source.PeerClientConfig).
	TLS func(server, protocol string) *tls.Config
	// Expected are the migrations to this node.
	Expected *migrationproxy.Expectations
	// Address is where other nodes reach this one; empty while they don't.
	Address func() string
	// CPUs is how many processors virt-handler may use at a time.
	CPUs int
	// Limits are how long the other nodes' virt-handlers are waited for.
	Limits migrationproxy.Limits
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
	disks  disks
	// offer is how the source would send the guest, and agreed what QEMU waits for.
	offer, agreed transport
	// unmarked is the driver's: see switchover.TargetFacts.
	unmarked bool
}

// NewTarget lets the source of a migration call, which is on a node. dial connects to the sockets on
// which QEMU takes its guest and the content of its disks.
func NewTarget(env Env, id ID, node string, dial migrationproxy.Target) *Target {
	t := &Target{env: env, heard: heard{wake: env.Wake, now: env.Now}}
	dial.Facts, dial.Heard = &t.mine, t.heard.add
	dial.HeardDisks = func(told []migrationwire.Disk) { t.disks.set(told); env.Wake() }
	dial.HeardOffer = func(offer migrationwire.Transport) { t.offer.set(offer); env.Wake() }
	t.forget = env.Expected.Expect(migrationproxy.Expected{
		MigrationUID: string(id.Migration), VMIUID: string(id.VMI), Namespace: id.Namespace, Name: id.Name,
		SourceNode: node, Target: dial,
	})
	return t
}

// Close ends all of the source's connections.
func (t *Target) Close() { t.forget() }

// Tell has the source hear a fact. That the target is ready, it hears after what it is ready for.
func (t *Target) Tell(fact switchover.Fact) {
	if fact != switchover.Ready || t.Agreed() {
		tell(&t.mine, fact)
	}
}

// Unrun notes that QEMU was seen without its ran marker, or that the marker is about to be set.
func (t *Target) Unrun(unmarked bool) { t.unmarked = unmarked }

// Disks are those that the source's guest has beside those that it was started with, nil as long as
// the source has told of none.
func (t *Target) Disks() []migrationwire.Disk { return t.disks.get() }

// TellPlugged has the source hear that the QEMU of this side has the disks that it told of.
func (t *Target) TellPlugged() { t.mine.Publish(migrationwire.Plugged) }

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
	agreed transport
	ctx    context.Context
	cancel context.CancelFunc

	// What follows is the driver's goroutine's own. offered is how the guest would be sent. forwards are QEMU's streams, none before the
	// migration was begun here, and endDisks ends those of disks; progress is what they have
	// brought about. copying is since when disks are copied, and copied what that has come to until
	// memory is sent. stopped is since when the guest stands still, began when QEMU was told to
	// begin, cause why the migration was canceled, and refused why the guest can't be sent at all.
	offered        switchover.Transport
	forwards       map[migrationwire.Channel]*migrationproxy.Forward
	endDisks       context.CancelFunc
	progress       switchover.Progress
	copying        time.Time
	copied         switchover.Sample
	stopped        time.Time
	began          time.Time
	cause, refused string
	// allowed is how long QEMU was told that it may stop its guest.
	allowed time.Duration
	// toldProgress is when progress was told last, or when there was none to tell yet.
	toldProgress time.Time
	// sent means that QEMU was seen to have sent the guest.
	sent bool
	// disks are those that the target was told of; told that it was.
	disks []migrationwire.Disk
	told  bool
	// finished means that QEMU was told to finish the copies of disks, continued that it was told to
	// hand the guest over, switched that it was told to do so before its memory is sent.
	finished, continued, switched bool
}

// NewSource calls the virt-handler of the node that a migration goes to, and keeps calling it until
// ctx ends or the Source is closed.
func NewSource(ctx context.Context, env Env, id ID, node, address string) (*Source, error) {
	at, err := migrationwire.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	s := &Source{env: env, heard: heard{wake: env.Wake, now: env.Now}, forwards: map[migrationwire.Channel]*migrationproxy.Forward{}, toldProgress: env.Now()}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.out = &migrationproxy.Outgoing{Address: at, Node: node, Header: id.header(), TLS: env.TLS, Log: env.Log, Limits: env.Limits}
	env.Go(func() {
		s.out.Control(s.ctx, migrationproxy.Conversation{
			Mine: &s.mine, Heard: s.heard.add, Connected: s.heard.connect, HeardAgreed: s.agreed.set,
		})
	})
	return s, nil
}

// Close ends all connections.
func (s *Source) Close() { s.cancel() }

// Tell has the target hear a fact.
func (s *Source) Tell(fact switchover.Fact) { tell(&s.mine, fact) }

// diskAnswer is how long the target may leave a write to a disk unanswered: the guest waits for it. No
// disk that works takes as long.
const diskAnswer = 20 * time.Second

// Forward passes QEMU's connections on that come from a listener, which it closes in the end. admit
// checks who connects.
func (s *Source) Forward(channel migrationwire.Channel, listener migrationproxy.Listener, admit func(*net.UnixConn) error) {
	ctx, cancel := context.WithCancel(s.ctx)
	f := &migrationproxy.Forward{Outgoing: s.out, Channel: channel, Admit: admit}
	if channel == migrationwire.Disks {
		s.endDisks, f.Answers = cancel, diskAnswer
	}
	s.forwards[channel] = f
	s.env.Go(func() {
		defer cancel()
		if err := f.Run(ctx, listener); err != nil {
			s.env.Log.Info("the streams of a migration have ended", "migration", s.out.Header.MigrationUID, "channel", channel, "reason", err.Error())
		}
	})
}

// Forwards reports whether QEMU's connections of a channel are passed on.
func (s *Source) Forwards(channel migrationwire.Channel) bool { return s.forwards[channel] != nil }

// OpenDisks ends them when QEMU has connected and opened is not called for so long: it opens the disks at
// the target, and waits for that.
func (s *Source) OpenDisks(wait time.Duration) (opened func()) {
	return s.forwards[migrationwire.Disks].Opening(wait, s.EndDisks)
}

// EndDisks ends the connections by which disks are copied: QEMU waits for them.
func (s *Source) EndDisks() {
	if s.endDisks != nil {
		s.endDisks()
	}
}

// Finishes notes that QEMU was told to finish the copies of disks.
func (s *Source) Finishes() { s.finished = true }

// Finished reports whether QEMU was told so.
func (s *Source) Finished() bool { return s.finished }

// Begins notes that QEMU is about to be told to begin.
func (s *Source) Begins() {
	s.began = s.env.Now()
	if s.copying.IsZero() {
		s.toldProgress = s.began
	}
}

// Allows notes how long QEMU was told that it may stop its guest for the last of its memory.
func (s *Source) Allows(downtime time.Duration) { s.allowed = downtime }

// Allowed is how long QEMU was told, 0 before.
func (s *Source) Allowed() time.Duration { return s.allowed }

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

// CopiedDisks notes what QEMU says of disks that are copied before memory is.
func (s *Source) CopiedDisks(m *switchover.Mirrors) {
	now := s.env.Now()
	if s.copying.IsZero() {
		s.copying, s.toldProgress = now, now
	}
	sample := switchover.Sample{Elapsed: now.Sub(s.copying), Transferred: m.Done, Remaining: max(0, m.Total-m.Done)}
	if seconds := sample.Elapsed.Seconds(); seconds >= 1 {
		sample.Throughput = int64(float64(m.Done) / seconds)
	}
	s.copied, s.progress = sample, s.progress.Add(sample)
}

// Copied notes what QEMU says of a migration that copies memory, which comes after the disks.
func (s *Source) Copied(sample switchover.Sample) {
	sample.Elapsed += s.copied.Elapsed
	sample.Transferred += s.copied.Transferred
	s.progress = s.progress.Add(sample)
}

// CopyRate is what has been copied of disks in a second, in bytes.
func (s *Source) CopyRate() int64 { return s.copied.Throughput }

// Sent notes that QEMU has sent the guest, as a rule for a moment: that is told when it has been so for long.
func (s *Source) Sent() {
	if !s.sent {
		s.sent, s.toldProgress = true, s.env.Now()
	}
}

// ProgressDue reports whether it is to be told at a time how far the migration is.
func (s *Source) ProgressDue(now time.Time) bool { return vmistatus.ProgressDue(s.toldProgress, now) }

// ToldProgress notes that it is being told, as it was at a time.
func (s *Source) ToldProgress(now time.Time) { s.toldProgress = now }

// Stands notes whether the guest stands still, and waits for the switchover.
func (s *Source) Stands(still bool) {
	switch {
	case !still:
		s.stopped = time.Time{}
	case s.stopped.IsZero():
		s.stopped = s.env.Now()
	}
}

// TellDisks has the target hear which disks the guest has beside those that it was started with. The
// first answer counts; same is false when it was another one.
func (s *Source) TellDisks(disks []migrationwire.Disk) (same bool) {
	if !s.told {
		s.told, s.disks = true, disks
		s.mine.PublishDisks(disks)
	}
	return slices.Equal(s.disks, disks)
}

// ready reports whether the target's QEMU takes the guest, which it can with all of its disks only. A
// virt-handler that knows nothing of them never says so.
func (s *Source) ready() bool {
	return s.heard.has(switchover.Ready) && (len(s.disks) == 0 || s.heard.has(switchover.Fact(migrationwire.Plugged)))
}

// Fill adds to the facts at the source what is known here. limits are those of the migration.
func (s *Source) Fill(f *switchover.SourceFacts, limits switchover.Limits) {
	f.Connected = s.heard.connected()
	f.Ready, f.Ran, f.Never = s.ready(), s.heard.has(switchover.Ran), s.heard.has(switchover.Never)
	f.Streams, f.Cause = len(s.forwards) > 0, s.cause
	if !s.stopped.IsZero() {
		f.Stopped = s.env.Now().Sub(s.stopped)
	}
	if f.Streams && (f.Begun || f.Mirrors.Begun) {
		f.Convergence = switchover.DecideConvergence(s.progress, limits)
	}
	if f.Begun && s.refused != "" {
		f.Convergence = switchover.Convergence{Action: switchover.GiveUp, Reason: s.refused}
	}
}
