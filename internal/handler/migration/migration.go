// Package migration is the part of a driver that moves its guest to or from another node: the connections to the other
// node's virt-handler, the facts from there, and the state of a migration that this virt-handler has begun.
//
//	Source: control connection, forwarding of QEMU's streams   (virt-handler at the source)
//	Target: facts and connections from the source              (virt-handler at the target)
//
// A Source or Target owns the connections and facts of one migration, and ends with it. It must not decide the
// consequences of a fact (package switchover does), and knows neither QEMU's monitor nor the API server. It stores
// nothing for the next virt-handler: the other side sends all its facts again.
package migration

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/handler/migrationproxy"
	"drydock.dev/drydock/internal/rules/migration/switchover"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Node has the dependencies of a node's migrations.
type Node struct {
	// TLS configures connections to another node's virt-handler (certs.Source.PeerClientConfig).
	TLS      func(server, protocol string) *tls.Config
	Expected *migrationproxy.Expectations
	// Address is empty if other nodes can't reach this one.
	Address func() string
	CPUs    int // for virt-handler at a time
	Limits  migrationproxy.Limits
}

// Env has the dependencies of a migration.
type Env struct {
	*Node
	// Go runs a goroutine that the owner waits for.
	Go   func(func())
	Wake func()
	Now  func() time.Time
	Log  logr.Logger
}

// ID identifies a migration and its VMI.
type ID struct {
	Migration, VMI  types.UID
	Namespace, Name string
}

// IDOf returns the ID of a VMI's migration.
func IDOf(vmi *v1.VirtualMachineInstance, state *v1.VirtualMachineInstanceMigrationState) ID {
	return ID{Migration: state.MigrationUID, VMI: vmi.UID, Namespace: vmi.Namespace, Name: vmi.Name}
}

func (id *ID) header() migrationwire.Header {
	return migrationwire.Header{MigrationUID: string(id.Migration), VMIUID: string(id.VMI), Namespace: id.Namespace, Name: id.Name}
}

func publish(facts *migrationproxy.Facts, fact switchover.Fact) {
	if fact != "" {
		facts.Publish(migrationwire.Kind(fact))
	}
}

// Target is this node's side of a migration to it.
type Target struct {
	env      Env
	mine     migrationproxy.Facts
	forget   func()
	received received
	disks    disks
	// The source proposes offer; QEMU uses agreed.
	offer, agreed transport
	unmarked      bool // see switchover.TargetFacts
}

// NewTarget admits the source of a migration, which runs on node. dial connects to QEMU's sockets.
func NewTarget(env Env, id ID, node string, dial migrationproxy.Target) *Target {
	t := &Target{env: env, received: received{wake: env.Wake, now: env.Now}}
	dial.Facts, dial.Heard = &t.mine, t.received.add
	dial.HeardDisks = func(told []migrationwire.Disk) { t.disks.set(told); env.Wake() }
	dial.HeardOffer = func(offer migrationwire.Transport) { t.offer.set(offer); env.Wake() }
	t.forget = env.Expected.Expect(migrationproxy.Expected{
		MigrationUID: string(id.Migration), VMIUID: string(id.VMI), Namespace: id.Namespace, Name: id.Name,
		SourceNode: node, Target: dial,
	})
	return t
}

// Close ends the source's connections.
func (t *Target) Close() { t.forget() }

// Tell sends a fact to the source, Ready only when the transport is agreed.
func (t *Target) Tell(fact switchover.Fact) {
	if fact != switchover.Ready || t.Agreed() {
		publish(&t.mine, fact)
	}
}

// RecordUnmarked records whether QEMU has no ran marker, and none is about to be set.
func (t *Target) RecordUnmarked(unmarked bool) { t.unmarked = unmarked }

// Disks returns the plugged disks of the source's guest, nil until the source has sent them.
func (t *Target) Disks() []migrationwire.Disk { return t.disks.get() }

// TellPlugged tells the source that QEMU here has the plugged disks.
func (t *Target) TellPlugged() { t.mine.Publish(migrationwire.Plugged) }

// AddFacts adds this side's facts.
func (t *Target) AddFacts(f *switchover.TargetFacts) {
	f.Released, f.Unmarked = t.received.has(switchover.Released), t.unmarked
}

// Source is this node's side of a migration away from it.
type Source struct {
	env      Env
	out      *migrationproxy.Outgoing
	mine     migrationproxy.Facts
	received received
	agreed   transport
	ctx      context.Context
	cancel   context.CancelFunc

	// The following fields belong to the driver's goroutine.
	offered  switchover.Transport
	forwards map[migrationwire.Channel]*migrationproxy.Forward
	endDisks context.CancelFunc
	progress switchover.Progress
	// copied is the last sample of the disk copies, which began at copying.
	copying time.Time
	copied  switchover.Sample
	// The guest is stopped until its memory is sent (paused), or for the switchover (stopped). QEMU cancels the
	// migration (canceling). Each is zero while that is not so.
	paused, stopped, canceling time.Time
	switched                   time.Time // to post-copy
	began                      time.Time
	cause                      string // of the cancellation
	told                       Told
	// lastWritten is when progress was last written, or there was none to write yet.
	lastWritten time.Time
	handsOver   bool
	// The guest is marked as left; its stream is kept open at QEMU's end (shielded); a part of the stream has not reached
	// the target (lost); virt-handler has answered QEMU in the target's place (rejected).
	left, shielded, lost, rejected bool
}

// Told has the commands and facts that this Source has sent to QEMU and the target.
type Told struct {
	// Refused is the reason why the guest can't be sent; empty if none is known.
	Refused string
	// DisksSent means that the target has Disks, the list of plugged disks.
	Disks     []migrationwire.Disk
	DisksSent bool
	// QEMU was told to finish the disk copies, to hand the guest over, or to hand it over before its memory.
	Finished, Continued, Switched bool
	// Downtime is the last limit, 0 for none.
	Downtime time.Duration
	// Withdrawn is the last withdrawal's time.
	Withdrawn time.Time
}

// NewSource connects to the virt-handler of a migration's target until ctx ends or Close.
func NewSource(ctx context.Context, env Env, id ID, node, address string) (*Source, error) {
	at, err := migrationwire.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	s := &Source{env: env, received: received{wake: env.Wake, now: env.Now}, forwards: map[migrationwire.Channel]*migrationproxy.Forward{}, lastWritten: env.Now()}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.out = &migrationproxy.Outgoing{Address: at, Node: node, Header: id.header(), TLS: env.TLS, Log: env.Log, Limits: env.Limits}
	env.Go(func() {
		s.out.Control(s.ctx, migrationproxy.Conversation{
			Mine: &s.mine, Heard: s.received.add, Connected: s.received.countConnection, HeardAgreed: s.agreed.set,
		})
	})
	return s, nil
}

// Close ends all connections.
func (s *Source) Close() { s.cancel() }

// Tell sends a fact to the target.
func (s *Source) Tell(fact switchover.Fact) { publish(&s.mine, fact) }

// diskAnswer bounds the target's answer to a write to a disk, for which the guest waits. A working disk is faster.
const diskAnswer = 20 * time.Second

// Forward forwards QEMU's connections to the target after admit has checked their process. It closes the listener.
func (s *Source) Forward(channel migrationwire.Channel, listener migrationproxy.Listener, admit func(*net.UnixConn) error) {
	ctx, cancel := context.WithCancel(s.ctx)
	f := &migrationproxy.Forward{Outgoing: s.out, Channel: channel, Admit: admit, OnLost: s.env.Wake}
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

// Forwards reports whether a channel's connections are forwarded.
func (s *Source) Forwards(channel migrationwire.Channel) bool { return s.forwards[channel] != nil }

// OpenDisks ends the disk connections if opened is not called within wait after QEMU has connected. QEMU answers nothing
// while it opens the disks at the target.
func (s *Source) OpenDisks(wait time.Duration) (opened func()) {
	return s.forwards[migrationwire.Disks].Opening(wait, s.EndDisks)
}

// EndDisks ends the disk connections: QEMU may wait for them.
func (s *Source) EndDisks() {
	if s.endDisks != nil {
		s.endDisks()
	}
}

// RecordFinishMirrors records that QEMU was told to finish the disk copies.
func (s *Source) RecordFinishMirrors() { s.told.Finished = true }

// RecordBegin records that QEMU is about to be told to migrate.
func (s *Source) RecordBegin() {
	s.began = s.env.Now()
	if s.copying.IsZero() {
		s.lastWritten = s.began
	}
}

// RecordDowntimeLimit records the limit that QEMU was told.
func (s *Source) RecordDowntimeLimit(downtime time.Duration) { s.told.Downtime = downtime }

// RecordContinue records that QEMU was told to hand the guest over.
func (s *Source) RecordContinue() { s.told.Continued = true }

// Shield keeps a stream that breaks at the target's end open at QEMU's end, until RecordLeft. Call it before QEMU is told
// to hand a guest over by post-copy.
func (s *Source) Shield() {
	if f := s.forwards[migrationwire.Stream]; f != nil {
		s.shielded = true
		f.Shield()
	}
}

// Shielded reports whether a stream is kept open at QEMU's end.
func (s *Source) Shielded() bool {
	return s.shielded && s.forwards[migrationwire.Stream].Open()
}

// Lost reports whether a part of the stream has not reached the target, unknown to QEMU.
func (s *Source) Lost() bool {
	f := s.forwards[migrationwire.Stream]
	s.lost = s.lost || f != nil && f.Lost()
	return s.lost
}

// RecordWithdrawal records that QEMU is being told to withdraw the guest.
func (s *Source) RecordWithdrawal() { s.told.Withdrawn = s.env.Now() }

// RecordCancelReason records the reason of the cancellation; the first counts.
func (s *Source) RecordCancelReason(reason string) {
	if s.cause == "" {
		s.cause = reason
	}
}

// RecordRefusal records why the guest can't be sent.
func (s *Source) RecordRefusal(reason string) { s.told.Refused = reason }

// RecordDiskProgress records the progress of the disk copies. They come before memory.
func (s *Source) RecordDiskProgress(m *switchover.Mirrors) {
	now := s.env.Now()
	if s.copying.IsZero() {
		s.copying, s.lastWritten = now, now
	}
	sample := switchover.Sample{Elapsed: now.Sub(s.copying), Transferred: m.Done, Remaining: max(0, m.Total-m.Done)}
	if seconds := sample.Elapsed.Seconds(); seconds >= 1 {
		sample.Throughput = int64(float64(m.Done) / seconds)
	}
	s.copied, s.progress = sample, s.progress.Add(sample)
}

// RecordMemoryProgress adds a sample of memory to the progress of the disks.
func (s *Source) RecordMemoryProgress(sample switchover.Sample) {
	sample.Elapsed += s.copied.Elapsed
	sample.Transferred += s.copied.Transferred
	s.progress = s.progress.Add(sample)
}

// CopyRate is in bytes per second.
func (s *Source) CopyRate() int64 { return s.copied.Throughput }

// RecordHandover records that QEMU hands the guest over, or has sent it. Progress is due only if that lasts.
func (s *Source) RecordHandover() {
	if !s.handsOver {
		s.handsOver, s.lastWritten = true, s.env.Now()
	}
}

// ProgressDue reports whether progress should be written.
func (s *Source) ProgressDue(now time.Time) bool { return vmistatus.ProgressDue(s.lastWritten, now) }

// RecordProgressWrite records that progress is being written.
func (s *Source) RecordProgressWrite(now time.Time) { s.lastWritten = now }

// RecordLeft records that the guest is marked as left, and ends the shield: QEMU must notice a broken stream from now on.
func (s *Source) RecordLeft() {
	s.left, s.shielded, s.lost = true, false, false
	if f := s.forwards[migrationwire.Stream]; f != nil {
		f.Unshield()
	}
}

// Reject tells a QEMU that has sent all memory into a discarded stream that the guest could not be loaded.
func (s *Source) Reject() error {
	f := s.forwards[migrationwire.Stream]
	if f == nil || s.rejected {
		return nil
	}
	done, err := f.Reject()
	s.rejected = done
	return err
}

// Discard frees a QEMU that hands its guest over for the next command: QEMU does nothing else while the target does not
// read (migrationproxy.Forward.Discard).
func (s *Source) Discard() {
	if f := s.forwards[migrationwire.Stream]; f != nil && (s.told.Continued || s.told.Refused != "") && !s.left {
		f.Discard()
	}
}

// RecordStopped records whether the guest is stopped for the switchover.
func (s *Source) RecordStopped(still bool) { s.stopped = s.since(s.stopped, still) }

// RecordCanceling records whether QEMU cancels the migration.
func (s *Source) RecordCanceling(still bool) { s.canceling = s.since(s.canceling, still) }

// RecordPaused records whether the guest is stopped until its memory is sent.
func (s *Source) RecordPaused(still bool) { s.paused = s.since(s.paused, still) }

// since returns when an observed state began, zero if it is not observed. then is the last result.
func (s *Source) since(then time.Time, observed bool) time.Time {
	switch {
	case !observed:
		return time.Time{}
	case then.IsZero():
		return s.env.Now()
	}
	return then
}

func (s *Source) lasts(since time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return s.env.Now().Sub(since)
}

// TellDisks sends the plugged disks to the target; the first list counts.
func (s *Source) TellDisks(disks []migrationwire.Disk) {
	if !s.told.DisksSent {
		s.told.DisksSent, s.told.Disks = true, disks
		s.mine.PublishDisks(disks)
	}
}

// Told returns the commands and facts that were sent.
func (s *Source) Told() Told { return s.told }

// Plugged reports whether QEMU at the target has all plugged disks. An old virt-handler, which can't move them, never
// says so.
func (s *Source) Plugged() bool { return s.received.has(switchover.Fact(migrationwire.Plugged)) }

// AddFacts adds this side's facts.
func (s *Source) AddFacts(f *switchover.SourceFacts, limits switchover.Limits) {
	f.Connected = s.received.connected()
	f.Ready = s.received.has(switchover.Ready)
	f.Ran, f.Never = s.received.has(switchover.Ran), s.received.has(switchover.Never)
	f.Streams, f.Cause, f.Downtime = len(s.forwards) > 0, s.cause, limits.Downtime
	f.Loaded = s.received.has(switchover.Loaded) || s.agreed.lacksLoaded()
	f.Stopped, f.Continued = s.lasts(s.stopped), s.told.Continued
	f.StreamLost = s.Lost()
	f.Canceling = s.lasts(s.canceling)
	f.Switching = min(s.lasts(s.paused), s.lasts(s.switched))
	if f.Streams && (f.Begun || f.Mirrors.Begun) {
		f.Convergence = switchover.DecideConvergence(s.progress, limits, s.lasts(s.paused))
	}
	if f.Begun && s.told.Refused != "" {
		f.Convergence = switchover.Convergence{Action: switchover.GiveUp, Reason: s.told.Refused}
	}
}
