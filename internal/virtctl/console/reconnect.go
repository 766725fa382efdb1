package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/virtctl/client"
)

const (
	// reopenPause is the interval of attempts to reopen the console of a running guest.
	reopenPause = 250 * time.Millisecond
	// reopenPatience bounds these attempts: it is enough for a replaced virt-handler, and for a guest's new
	// node on a busy cluster.
	reopenPatience = 2 * time.Minute
)

// place is a guest's location when its console was opened. The zero value means unknown.
type place struct {
	uid  types.UID
	node string
}

type next int

const (
	// over means that the console has ended with its guest.
	over next = iota
	// again means that the console is reopened.
	again
	// later means that the state is not known yet.
	later
)

// decideNext decides the action. vmi is the current VMI, err the error of reading it.
//
//	VMI                                   | action
//	the user may not read it              | over: it is unknown whether the guest runs
//	gone, or another one of that name     | over
//	ended                                 | over
//	not read for another reason           | later
//	any other                             | again: the guest has moved to another node, or its
//	                                      | virt-handler was replaced
func decideNext(was place, vmi *v1.VirtualMachineInstance, err error) next {
	switch {
	case was.uid == "", apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return over
	case err != nil:
		return later
	case vmi.UID != was.uid, vmi.IsFinal():
		return over
	}
	return again
}

type cluster interface {
	VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
	Stream(ctx context.Context, ref client.Ref, verb string) (net.Conn, error)
}

// lasting is the console of a guest on any node: it is reopened if its connection ends and the guest has not.
// One goroutine may read while another writes.
type lasting struct {
	net.Conn // the first connection, for methods without a caller

	cluster cluster
	ref     client.Ref
	note    func(line string)
	// ctx ends with Close.
	ctx    context.Context
	cancel context.CancelFunc

	mu sync.Mutex
	// changed is closed when conn was replaced or the console has ended.
	changed  chan struct{}
	conn     net.Conn
	deadline time.Time
	// The fields below are the reader's: the guest's last place, when the connection was opened, since when none has
	// brought data, and whether the user is still to be told of an interruption.
	was           place
	opened, since time.Time
	untold        bool
}

func open(ctx context.Context, c cluster, ref client.Ref, note func(line string)) (*lasting, error) {
	conn, err := c.Stream(ctx, ref, "console")
	if err != nil {
		return nil, err
	}
	l := &lasting{Conn: conn, conn: conn, cluster: c, ref: ref, note: note, changed: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(ctx)
	// Without the VMI the console ends with its first connection.
	if vmi, err := c.VMI(ctx, ref.Namespace, ref.Name); err == nil {
		l.was = placeOf(vmi)
	}
	return l, nil
}

func placeOf(vmi *v1.VirtualMachineInstance) place { return place{vmi.UID, vmi.Status.NodeName} }

// Read reads from successive connections.
func (l *lasting) Read(p []byte) (int, error) {
	for {
		n, err := l.current().Read(p)
		if n > 0 {
			l.since = time.Time{}
			if l.untold {
				l.note(fmt.Sprintf("[The connection to VM %s was interrupted; its console goes on]", l.ref.Name))
			}
			l.untold = false
		}
		var timeout net.Error
		if n > 0 || err == nil || l.ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout() {
			return n, err
		}
		if err := l.reopen(err); err != nil {
			return 0, err
		}
	}
}

// Write waits for a connection.
func (l *lasting) Write(p []byte) (int, error) {
	for {
		l.mu.Lock()
		conn, changed := l.conn, l.changed
		l.mu.Unlock()
		n, err := conn.Write(p)
		if err == nil || l.ctx.Err() != nil {
			return n, err
		}
		// The reader detects the connection's end, too.
		select {
		case <-changed:
		case <-l.ctx.Done():
			return n, err
		}
	}
}

func (l *lasting) Close() error {
	l.cancel()
	return l.current().Close()
}

// SetReadDeadline also bounds reads on later connections.
func (l *lasting) SetReadDeadline(deadline time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = deadline
	return l.conn.SetReadDeadline(deadline)
}

func (l *lasting) current() net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

// reopen reopens the console after its connection has ended with the error ended, and returns that error if the
// console has ended too.
func (l *lasting) reopen(ended error) error {
	_ = l.current().Close()
	if l.was == (place{}) {
		return ended // as decideNext decides, without a request
	}
	// A connection that ends without data soon is one more failed attempt.
	first := l.since.IsZero() || time.Since(l.opened) > reopenPatience
	if first {
		l.since = time.Now()
	}
	var failure error
	for ; ; first = false {
		if !first && !l.pause() {
			return ended
		}
		vmi, err := l.cluster.VMI(l.ctx, l.ref.Namespace, l.ref.Name)
		switch decideNext(l.was, vmi, err) {
		case over:
			return ended
		case later:
			failure = err
		case again:
			if failure = l.try(); failure == nil {
				return nil
			}
		}
		if time.Since(l.since) > reopenPatience {
			return fmt.Errorf("opening the console of VMI %s again, which did not succeed within %s: %w", l.ref.Name, reopenPatience, failure)
		}
	}
}

// pause reports false if the user has left meanwhile.
func (l *lasting) pause() bool {
	select {
	case <-l.ctx.Done():
		return false
	case <-time.After(reopenPause):
		return true
	}
}

func (l *lasting) try() error {
	conn, err := l.cluster.Stream(l.ctx, l.ref, "console")
	if err != nil {
		return err
	}
	is := l.was
	if vmi, err := l.cluster.VMI(l.ctx, l.ref.Namespace, l.ref.Name); err == nil {
		is = placeOf(vmi)
	}
	if is.uid != l.was.uid {
		_ = conn.Close()
		return io.EOF
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		_ = conn.Close()
		return l.ctx.Err()
	}
	_ = conn.SetReadDeadline(l.deadline)
	l.conn = conn
	close(l.changed)
	l.changed = make(chan struct{})
	// A source that the guest is leaving accepts a connection and ends it. Only data shows that the guest is still there.
	l.untold = is.node == l.was.node
	if !l.untold {
		l.note(fmt.Sprintf("[VM %s has migrated from node %s to node %s; its console goes on]", l.ref.Name, l.was.node, is.node))
	}
	l.was, l.opened = is, time.Now()
	return nil
}
