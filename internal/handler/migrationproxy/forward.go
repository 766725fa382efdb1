package migrationproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"drydock.dev/drydock/internal/contracts/migrationwire"
)

// Forward forwards each connection of the source's QEMU to the target. Its fields are set before Run.
type Forward struct {
	Outgoing *Outgoing
	Channel  migrationwire.Channel // Stream or Disks
	// Admit checks the connecting process: the guest can use the socket's directory.
	Admit func(*net.UnixConn) error
	// Answers bounds the target's answer to QEMU's data; 0 for no limit, as with memory.
	Answers time.Duration
	// OnLost is called when a stream is Lost. It must not block; may be nil.
	OnLost func()

	sent, received atomic.Int64
	opening        atomic.Pointer[answerTimer]

	mu      sync.Mutex
	open    int
	streams map[*stream]bool
	failure error
	left    bool
	// shielded hides from QEMU that a stream breaks at the target's end.
	shielded bool
}

// Sent returns the bytes sent to the target.
func (f *Forward) Sent() int64 { return f.sent.Load() }

// Received returns the bytes received from the target.
func (f *Forward) Received() int64 { return f.received.Load() }

// Failure returns the first connection's error, nil for none. It is known before QEMU notices the connection's end. It
// means nothing unless the migration has failed: the other side may end a connection first.
func (f *Forward) Failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure == nil && f.left {
		return fmt.Errorf("node %s, its virt-handler or the QEMU there, has ended the migration's connection", f.Outgoing.Node)
	}
	return f.failure
}

// Discard ends the streams to the target, and discards the data that QEMU still writes. So a QEMU that waits for the
// target hears its next command, and does not see a stream's end, after which it could not give up a post-copy.
func (f *Forward) Discard() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.streams {
		s.discards.Store(true)
		_ = s.peer.NetConn().Close() // run continues until QEMU ends its side
	}
}

// Shield discards the data of a stream that breaks at the target's end, instead of ending it: QEMU can't take back a
// post-copy whose end it sees.
func (f *Forward) Shield() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shielded = true
}

// Unshield ends Shield, and the streams that have broken meanwhile.
func (f *Forward) Unshield() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shielded = false
	for s := range f.streams {
		if s.isLost() {
			_ = s.qemu.Close()
		}
	}
}

// Open reports whether QEMU has a stream.
func (f *Forward) Open() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.streams) > 0
}

// Lost reports whether a stream no longer reaches the target, unknown to QEMU.
func (f *Forward) Lost() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.streams {
		if s.isLost() {
			return true
		}
	}
	return false
}

// hides records that a stream has broken at the target's end, and reports whether to hide that from QEMU.
func (f *Forward) hides(s *stream) bool {
	if s.discards.Load() {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.shielded {
		return false
	}
	if !s.lost && f.OnLost != nil {
		defer f.OnLost()
	}
	s.lost = true
	return true
}

// Reject answers QEMU, in the target's place, that the guest could not be loaded. Call it repeatedly after all memory was
// sent and the streams were discarded: it answers on a stream that looks ended at two calls, without data in between. done
// reports whether QEMU has an answer.
func (f *Forward) Reject() (done bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.streams {
		end, count := s.tail.isEnd()
		before := s.ended
		if s.ended = count; !end || count != before {
			continue
		}
		_ = s.qemu.SetWriteDeadline(time.Now().Add(time.Second))
		switch _, err := s.qemu.Write(rejection()); {
		case errors.Is(err, unix.EPIPE):
			// QEMU has ended the stream, and needs no answer.
		case err != nil:
			return false, fmt.Errorf("answering QEMU in the target's place: %w", err)
		default:
			done = true
		}
	}
	return done, nil
}

func (f *Forward) keep(s *stream) (ended func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams == nil {
		f.streams = map[*stream]bool{}
	}
	f.streams[s] = true
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.streams, s)
	}
}

// Opening calls late if opened is not called within wait after QEMU's next connection.
func (f *Forward) Opening(wait time.Duration, late func()) (opened func()) {
	owed := &answerTimer{}
	owed.limit(wait, late)
	f.opening.Store(owed)
	return func() {
		f.opening.CompareAndSwap(owed, nil)
		owed.disable()
	}
}

func (f *Forward) startOpeningTimer() {
	if owed := f.opening.Load(); owed != nil {
		owed.begin()
	}
}

// Listener is QEMU's socket (podpath.Listener).
type Listener interface {
	Accept() (*net.UnixConn, error)
	Close() error
}

// Run serves the listener until ctx ends, closes it, and returns when all connections have ended. The error is the
// listener's.
func (f *Forward) Run(ctx context.Context, listener Listener) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() {
		<-ctx.Done()
		if err := listener.Close(); err != nil {
			f.recordFailure(fmt.Errorf("closing the migration's socket: %w", err))
		}
	})
	// QEMU connects once for each stream. A process that has broken out of the guest must not make this node call the
	// other one without limit.
	limiter := rate.NewLimiter(1, 2*f.Channel.MaxOpen())
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close() // it came too late
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("taking connections of the migration's QEMU: %w", err)
		case err != nil:
			f.recordFailure(fmt.Errorf("taking a connection of the migration's QEMU: %w", err))
			sleep(ctx, time.Second)
			continue
		}
		if err := f.begin(conn, limiter); err != nil {
			f.recordFailure(err)
			_ = conn.Close() // it is refused
			continue
		}
		f.startOpeningTimer()
		// One after the other: QEMU takes the first connection as its main stream (decision 293).
		peer, err := f.Outgoing.Dial(ctx, f.Channel)
		if err != nil {
			f.end()
			if ctx.Err() == nil {
				f.recordFailure(err)
			}
			_ = conn.Close() // QEMU has to notice
			continue
		}
		s := &stream{qemu: conn, peer: peer, fromQEMU: &f.sent, fromPeer: &f.received, drain: true, failed: f.recordFailure, left: f.recordLeft, answers: f.Answers, hides: f.hides}
		ended := f.keep(s)
		running.Go(func() {
			defer f.end()
			defer ended()
			_ = s.run(ctx) // recordFailure was called with it
		})
	}
}

func (f *Forward) begin(conn *net.UnixConn, limiter *rate.Limiter) error {
	if !limiter.Allow() {
		return errors.New("QEMU connects to the migration's socket again and again")
	}
	if err := f.Admit(conn); err != nil {
		return fmt.Errorf("a process that is not the guest's has connected to the migration's socket: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open >= f.Channel.MaxOpen() {
		return fmt.Errorf("QEMU has %d connections for the migration already, which is the most that one may have", f.open)
	}
	f.open++
	return nil
}

func (f *Forward) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open--
}

func (f *Forward) recordLeft() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = true
}

func (f *Forward) recordFailure(err error) {
	f.mu.Lock()
	if f.failure == nil {
		f.failure = err
	}
	f.mu.Unlock()
	f.Outgoing.Log.Info("a connection of the migration has failed", "migration", f.Outgoing.Header.MigrationUID, "node", f.Outgoing.Node, "reason", err.Error())
}
