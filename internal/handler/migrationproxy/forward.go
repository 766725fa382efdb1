package migrationproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"drydock.dev/drydock/internal/contracts/migrationwire"
)

// Forward takes the connections of the source's QEMU and passes each on to the target by
// one of its own. Its fields are set before Run.
type Forward struct {
	Outgoing *Outgoing
	// Channel is what the connections are for: migrationwire.Stream or Disks.
	Channel migrationwire.Channel
	// Admit checks who has connected: the socket is in a folder of the guest's.
	Admit func(*net.UnixConn) error
	// Answers is how long the target may say nothing when QEMU has said something; 0 for as long as
	// it likes, as with memory.
	Answers time.Duration

	sent, received atomic.Int64
	// opening is the debt of a target that is being opened, nil for none.
	opening atomic.Pointer[debt]

	mu      sync.Mutex
	open    int
	failure error
	// left says that the other node has ended a stream before QEMU has.
	left bool
}

// Sent is how many bytes went to the target until now.
func (f *Forward) Sent() int64 { return f.sent.Load() }

// Received is how many bytes came from the target until now.
func (f *Forward) Received() int64 { return f.received.Load() }

// Failure is why the first connection that failed did so, nil for none; those that fail
// next may do so for that reason. QEMU itself learns no more than that its connection has
// ended, and not before it is known here. It explains a migration that has failed: one
// that succeeds may have a connection that the other side ends first.
func (f *Forward) Failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure == nil && f.left {
		return fmt.Errorf("node %s, its virt-handler or the QEMU there, has ended the migration's connection", f.Outgoing.Node)
	}
	return f.failure
}

// Opening has late called when opened is not called for so long after QEMU's next connection. A
// QEMU that is slow to connect waits for nothing.
func (f *Forward) Opening(wait time.Duration, late func()) (opened func()) {
	owed := &debt{}
	owed.limit(wait, late)
	f.opening.Store(owed)
	return func() {
		f.opening.CompareAndSwap(owed, nil)
		owed.forgive()
	}
}

// connected notes that QEMU waits for the target.
func (f *Forward) connected() {
	if owed := f.opening.Load(); owed != nil {
		owed.begin()
	}
}

// Listener is the socket that QEMU connects to (podpath.Listener).
type Listener interface {
	Accept() (*net.UnixConn, error)
	Close() error
}

// Run serves the listener until ctx ends, and closes it. When it returns, all connections
// have ended. The error is that of the listener.
func (f *Forward) Run(ctx context.Context, listener Listener) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() {
		<-ctx.Done()
		if err := listener.Close(); err != nil {
			f.failed(fmt.Errorf("closing the migration's socket: %w", err))
		}
	})
	// QEMU connects once for each stream. Whoever else can connect there has broken out
	// of the guest; it must not have this node call the other one without an end.
	limiter := rate.NewLimiter(1, 2*f.Channel.MaxOpen())
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close() // it is too late for it
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("taking connections of the migration's QEMU: %w", err)
		case err != nil:
			f.failed(fmt.Errorf("taking a connection of the migration's QEMU: %w", err))
			wait(ctx, time.Second)
			continue
		}
		if err := f.begin(conn, limiter); err != nil {
			f.failed(err)
			_ = conn.Close() // it is refused
			continue
		}
		f.connected()
		// One after the other: QEMU knows its main stream by being the first that
		// connects (decision 293).
		peer, err := f.Outgoing.Dial(ctx, f.Channel)
		if err != nil {
			f.end()
			if ctx.Err() == nil {
				f.failed(err)
			}
			_ = conn.Close() // QEMU is to notice
			continue
		}
		running.Go(func() {
			defer f.end()
			s := &stream{qemu: conn, peer: peer, fromQEMU: &f.sent, fromPeer: &f.received, drain: true, failed: f.failed, left: f.leave, answers: f.Answers}
			_ = s.run(ctx) // it was told to failed
		})
	}
}

// begin admits a connection and counts it.
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

func (f *Forward) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = true
}

func (f *Forward) failed(err error) {
	f.mu.Lock()
	if f.failure == nil {
		f.failure = err
	}
	f.mu.Unlock()
	f.Outgoing.Log.Info("a connection of the migration has failed", "migration", f.Outgoing.Header.MigrationUID, "node", f.Outgoing.Node, "reason", err.Error())
}
