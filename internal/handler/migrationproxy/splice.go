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
	// streamTimeout is how long a stream waits for a peer whose node or network says
	// nothing at all. It is longer than control's silence: what has been copied of a
	// guest's memory is worth a short outage.
	streamTimeout = 10 * time.Second
	// chunk is how much is read from QEMU at a time.
	chunk = 256 << 10
	// unsent is how much waits in the kernel for the network: without a limit it keeps megabytes, and the
	// guest stands still until the last of them has been sent.
	unsent = 512 << 10
)

// chunks are shared: a migration has up to 17 streams with two directions each.
var chunks = sync.Pool{New: func() any {
	buffer := make([]byte, chunk)
	return &buffer
}}

// duplex is a connection whose directions end one by one.
type duplex interface {
	net.Conn
	CloseWrite() error
}

// stream connects one of QEMU's connections with another virt-handler.
type stream struct {
	qemu *net.UnixConn
	peer *peerConn
	// fromQEMU and fromPeer count bytes that were passed on.
	fromQEMU, fromPeer *atomic.Int64
	// drain keeps the direction from QEMU when QEMU takes no more in the other one: the
	// source's QEMU closes its connections when it has written the last of them, and
	// that must arrive. At the target, a QEMU that takes no more has failed, which the
	// source must notice at once.
	drain bool
	// failed is called with what has failed first, before QEMU can notice it; nil to hear
	// nothing of it.
	failed func(error)
	// left is called when the other node ends its direction while QEMU has not ended its
	// own; nil to hear nothing of it. That is how a virt-handler ends that was killed (TLS
	// in Go does not tell it from a regular end), and a QEMU that takes no more.
	left func()
	// answers is how long the peer may say nothing when QEMU has said something; 0 for as long as it
	// likes.
	answers time.Duration
}

// run passes bytes in both directions until both have ended, or ctx has. The end of one
// direction is passed on as such: QEMU's return path lasts longer than the way there. A
// failure of one direction ends the other.
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
	var owed debt
	if s.answers > 0 {
		owed.limit(s.answers, func() { fail("waiting for the other node", errUnanswered) })
		defer owed.settle()
	}
	var said atomic.Bool
	directions.Go(func() {
		if err := pump(s.peer, s.qemu, passing{s.fromQEMU, owed.begin, func() { said.Store(true) }}); err != nil {
			fail("passing on what QEMU says", err)
		}
	})
	directions.Go(func() {
		err := pump(s.qemu, s.peer, passing{s.fromPeer, owed.settle, func() {
			if s.left != nil && !said.Load() {
				s.left()
			}
		}})
		var refused *writeError
		if s.drain && errors.As(err, &refused) {
			_, err = io.Copy(io.Discard, s.peer)
		}
		if err != nil {
			fail("passing on what the other node says", err)
		}
	})
	directions.Wait()
	return context.Cause(ctx)
}

func (s *stream) close() {
	// What is cut here has no reader any more.
	_ = s.qemu.Close()
	_ = s.peer.NetConn().Close()
}

// errUnanswered is of a peer that is there, and does not answer.
var errUnanswered = errors.New("it has not answered in time")

// debt is an answer that the peer owes. The zero value has no limit.
type debt struct {
	mu    sync.Mutex
	timer *time.Timer
	after time.Duration
	owed  bool
}

// limit has late called when an answer is owed for so long. It is set before the debt is used.
func (d *debt) limit(after time.Duration, late func()) {
	d.timer = time.AfterFunc(after, late)
	d.timer.Stop()
	d.after = after
}

// begin notes that something is about to be said to the peer. What was said before it counts.
func (d *debt) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.owed {
		d.owed = true
		d.timer.Reset(d.after)
	}
}

// settle notes that the peer has said something.
func (d *debt) settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.owed = false
		d.timer.Stop()
	}
}

// forgive ends it for good: nothing is owed any more.
func (d *debt) forgive() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// writeError is the error of the side that is written to.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// passing is told what one direction passes on.
type passing struct {
	passed *atomic.Int64
	// begin is called before something is passed on, end when nothing follows.
	begin, end func()
}

// pump passes on what from says, and that it says no more.
func pump(to, from duplex, p passing) error {
	buffer := chunks.Get().(*[]byte)
	defer chunks.Put(buffer)
	for {
		n, err := from.Read(*buffer)
		if n > 0 {
			p.begin()
			if _, err := to.Write((*buffer)[:n]); err != nil {
				return &writeError{err}
			}
			p.passed.Add(int64(n))
		}
		if ended(from, err) {
			p.end()
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

// ended reports whether an error of reading says that from has said everything. So does
// the reset of a unix socket: whoever closed it had not read what was sent to it, but all
// that it had said has been read.
func ended(from duplex, err error) bool {
	_, local := from.(*net.UnixConn)
	return errors.Is(err, io.EOF) || local && errors.Is(err, unix.ECONNRESET)
}

// tune has the kernel end a connection whose other side's node says nothing any more, and not keep
// more than it can send.
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
