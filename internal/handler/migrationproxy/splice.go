package migrationproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// streamTimeout is the wait for a silent node or network. It exceeds the control connection's: the copied memory is
	// worth a short outage.
	streamTimeout = 10 * time.Second
	chunk         = 256 << 10
	// unsent bounds the kernel's queue, which would take megabytes: the guest stands still until it is empty.
	unsent = 512 << 10
)

// A migration has up to 17 streams with two directions each.
var chunks = sync.Pool{New: func() any {
	buffer := make([]byte, chunk)
	return &buffer
}}

type duplex interface {
	net.Conn
	CloseWrite() error
}

type stream struct {
	qemu               *net.UnixConn
	peer               *peerConn
	fromQEMU, fromPeer *atomic.Int64
	// drain keeps the direction from QEMU open when QEMU no longer reads: the source's QEMU closes its connections after
	// its last write, which must arrive. A target's QEMU that stops reading has failed: the source must notice at once.
	drain bool
	// failed gets the first failure before QEMU can notice it; may be nil.
	failed func(error)
	// left is called when the other node ends its direction before QEMU; may be nil. A virt-handler was killed (TLS in
	// Go does not distinguish that from a regular end) or a QEMU stops reading.
	left     func()
	answers  time.Duration
	discards atomic.Bool
	// hides reports whether to hide from QEMU that the other node's end has broken; nil for never.
	hides func(*stream) bool
	// Forward.mu guards them. lost means that the end has broken, unknown to QEMU; ended counts the bytes that QEMU had
	// sent at the last check of its end.
	lost  bool
	ended int64
	tail  tail // of the bytes from QEMU
}

// run passes bytes until both directions or ctx have ended. QEMU's return path outlasts the forward direction; a failure
// of one ends the other.
func (s *stream) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, s.close)
	defer stop()
	defer s.close()
	var directions sync.WaitGroup
	var once sync.Once
	fail := func(what string, err error) {
		err = fmt.Errorf("%s: %w", what, err)
		once.Do(func() {
			if s.failed != nil && ctx.Err() == nil {
				s.failed(err)
			}
		})
		cancel(err)
	}
	var owed answerTimer
	if s.answers > 0 {
		owed.limit(s.answers, func() { fail("waiting for the other node", errUnanswered) })
		defer owed.stop()
	}
	var said atomic.Bool
	directions.Go(func() {
		err := pump(s.peer, s.qemu, passing{passed: s.fromQEMU, begin: owed.begin, end: func() { said.Store(true) }, tail: &s.tail})
		switch {
		case err == nil:
		case s.hidden():
			_, _ = io.Copy(&s.tail, s.qemu) // until QEMU or ctx ends it
		default:
			fail("passing on what QEMU says", err)
		}
	})
	directions.Go(func() {
		err := pump(s.qemu, s.peer, passing{passed: s.fromPeer, begin: owed.stop, end: func() {
			if s.left != nil && !said.Load() {
				s.left()
			}
		}, keepsOpen: s.hidden})
		var refused *writeError
		if s.drain && errors.As(err, &refused) {
			_, err = io.Copy(io.Discard, s.peer)
		}
		if err != nil && !s.hidden() {
			fail("passing on what the other node says", err)
		}
	})
	directions.Wait()
	return context.Cause(ctx)
}

func (s *stream) isLost() bool { return s.lost || s.discards.Load() }

func (s *stream) hidden() bool { return s.hides != nil && s.hides(s) }

func (s *stream) close() {
	_ = s.qemu.Close()
	_ = s.peer.NetConn().Close()
}

var errUnanswered = errors.New("it has not answered in time")

// answerTimer bounds the wait for a peer's answer. The zero value has no limit.
type answerTimer struct {
	mu    sync.Mutex
	timer *time.Timer
	after time.Duration
	owed  bool
}

// limit must come before other methods.
func (d *answerTimer) limit(after time.Duration, late func()) {
	d.timer = time.AfterFunc(after, late)
	d.timer.Stop()
	d.after = after
}

// begin starts the timer, unless it runs, before data is sent.
func (d *answerTimer) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.owed {
		d.owed = true
		d.timer.Reset(d.after)
	}
}

func (d *answerTimer) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.owed = false
		d.timer.Stop()
	}
}

func (d *answerTimer) disable() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// writeError is an error of the receiving side.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

type passing struct {
	passed *atomic.Int64
	// begin is called before data is passed on, end when no more follows.
	begin, end func()
	tail       *tail // may be nil
	// keepsOpen reports whether to hide the end from the receiving side; nil for never.
	keepsOpen func() bool
}

var errEnded = errors.New("it has ended")

func pump(to, from duplex, p passing) error {
	buffer := chunks.Get().(*[]byte)
	defer chunks.Put(buffer)
	for {
		n, err := from.Read(*buffer)
		if n > 0 {
			p.begin()
			if p.tail != nil {
				_, _ = p.tail.Write((*buffer)[:n])
			}
			if _, err := to.Write((*buffer)[:n]); err != nil {
				return &writeError{err}
			}
			p.passed.Add(int64(n))
		}
		if ended(from, err) {
			p.end()
			if p.keepsOpen != nil && p.keepsOpen() {
				return errEnded
			}
			if err := to.CloseWrite(); err != nil {
				return &writeError{err}
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// ended reports whether a read error means that all data was read. A reset of a unix socket does: only the side that
// closed it had unread input.
func ended(from duplex, err error) bool {
	_, local := from.(*net.UnixConn)
	return errors.Is(err, io.EOF) || local && errors.Is(err, unix.ECONNRESET)
}

// tune makes the kernel end a connection to a silent node, and bounds its queue.
func tune(conn net.Conn) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: 2 * time.Second, Count: 4}); err != nil {
		return fmt.Errorf("setting the keepalive of a migration's connection: %w", err)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return fmt.Errorf("setting the options of a migration's connection: %w", err)
	}
	var options error
	if err := raw.Control(func(fd uintptr) {
		options = errors.Join(
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(streamTimeout/time.Millisecond)),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent))
	}); err != nil {
		return fmt.Errorf("setting the options of a migration's connection: %w", err)
	}
	if options != nil {
		return fmt.Errorf("setting the options of a migration's connection: %w", options)
	}
	return nil
}
