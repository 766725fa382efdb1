package migrationproxy

import (
	"context"
	"fmt"
	"net"
	"sync"

	"drydock.dev/drydock/internal/contracts/migrationwire"
)

// Target is what is here for a migration to this node. Its functions are called from
// several goroutines and must not block but for Dial and DialDisks.
type Target struct {
	// Done is closed when nothing of the migration is wanted here any more; its
	// connections end then.
	Done <-chan struct{}
	// Dial connects to the socket that the QEMU of this side takes the migration on.
	Dial func(ctx context.Context) (*net.UnixConn, error)
	// DialDisks connects to the one that disks are copied to; nil when none are.
	DialDisks func(ctx context.Context) (*net.UnixConn, error)
	// Claims means that disks are copied to other claims, which a source from before that would not do.
	Claims bool
	// Plugged means the same of disks that are plugged.
	Plugged bool
	// Facts are what this side says.
	Facts *Facts
	// Heard is called with each fact of the source's, once for each control connection.
	Heard func(migrationwire.Kind)
	// HeardDisks is called with the disks that the source's guest has beside those that it was started
	// with, once for each control connection; nil to hear nothing of them.
	HeardDisks func([]migrationwire.Disk)
	// HeardOffer is called with the transport that the source offers, once for each control connection; nil
	// to hear nothing of it.
	HeardOffer func(migrationwire.Transport)
	// Connected is called when a control connection begins and when the last one has
	// ended; nil to hear nothing of it.
	Connected func(bool)
}

// Registry says what is here for a connection, or refuses it.
type Registry interface {
	// Incoming is asked for every connection. The caller has proven to be peerNode; the
	// header is what it says. The error is a sentence for the caller.
	Incoming(header migrationwire.Header, peerNode string) (Target, error)
}

// Expected is a migration that the API server knows (the VMI's status.migrationState), with
// this node as its target.
type Expected struct {
	MigrationUID, VMIUID, Namespace, Name string
	// SourceNode is the recorded one.
	SourceNode string
	// Target is what is here; its Done is Expect's to set.
	Target Target
}

// admits reports whether the connection is one of this migration, from its source.
func (e *Expected) admits(h migrationwire.Header, peerNode string) bool {
	return e.MigrationUID == h.MigrationUID && e.VMIUID == h.VMIUID && e.Namespace == h.Namespace && e.Name == h.Name &&
		e.SourceNode != "" && e.SourceNode == peerNode
}

// Expectations is the Registry of the migrations that this node's drivers have taken on.
// The zero value refuses everything.
type Expectations struct {
	mu          sync.Mutex
	byMigration map[string]*expectation
}

type expectation struct {
	Expected
	done chan struct{}
}

// Expect lets the source of a migration call, until forget is called, which also ends the
// connections that there are. An earlier expectation of the same migration is forgotten.
func (e *Expectations) Expect(x Expected) (forget func()) {
	added := &expectation{Expected: x, done: make(chan struct{})}
	added.Target.Done = added.done
	e.mu.Lock()
	defer e.mu.Unlock()
	if earlier := e.byMigration[x.MigrationUID]; earlier != nil {
		close(earlier.done)
	}
	if e.byMigration == nil {
		e.byMigration = map[string]*expectation{}
	}
	e.byMigration[x.MigrationUID] = added
	return func() { e.forget(added) }
}

func (e *Expectations) forget(x *expectation) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byMigration[x.MigrationUID] == x {
		delete(e.byMigration, x.MigrationUID)
		close(x.done)
	}
}

// Incoming is Registry's. What differs is not said: it would be somebody else's.
func (e *Expectations) Incoming(h migrationwire.Header, peerNode string) (Target, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.byMigration[h.MigrationUID]; x != nil && x.admits(h, peerNode) {
		return x.Target, nil
	}
	return Target{}, fmt.Errorf("this node expects no migration %.100q of VMI %.100s/%.100s (UID %.100q) from node %s",
		h.MigrationUID, h.Namespace, h.Name, h.VMIUID, peerNode)
}
