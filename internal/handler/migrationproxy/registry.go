package migrationproxy

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/go-logr/logr"

	"drydock.dev/drydock/internal/contracts/migrationwire"
)

// Target is this node's side of a migration to it. Several goroutines call its functions, which must not block, except
// for Dial and DialDisks.
type Target struct {
	// Done ends the connections when it is closed. Expect sets it.
	Done <-chan struct{}
	Dial func(ctx context.Context) (*net.UnixConn, error)
	// DialDisks connects to the socket for copies of disks; nil if none are copied.
	DialDisks func(ctx context.Context) (*net.UnixConn, error)
	// A source is refused that can't copy disks to other claims (Claims), or plugged disks (Plugged).
	Claims  bool
	Plugged bool
	Facts   *Facts
	// Log is for lines about the guest. The zero value is the server's.
	Log logr.Logger
	// Each control connection calls these functions with all facts of the source; all but Heard may be nil.
	Heard      func(migrationwire.Kind)
	HeardDisks func([]migrationwire.Disk) // plugged into the source's guest
	HeardOffer func(migrationwire.Transport)
	// Connected is called when a control connection begins and when the last one has ended.
	Connected func(bool)
}

// Registry returns this node's side for a connection, or refuses it.
type Registry interface {
	// Incoming is called for every connection. The peer has proven to be peerNode; the header is unproven. The error is
	// for the peer.
	Incoming(header migrationwire.Header, peerNode string) (Target, error)
}

// Expected is a migration to this node, from the VMI's status.migrationState.
type Expected struct {
	MigrationUID, VMIUID, Namespace, Name string
	SourceNode                            string
	Target                                Target
}

func (e *Expected) admits(h migrationwire.Header, peerNode string) bool {
	return e.MigrationUID == h.MigrationUID && e.VMIUID == h.VMIUID && e.Namespace == h.Namespace && e.Name == h.Name &&
		e.SourceNode != "" && e.SourceNode == peerNode
}

// Expectations is the Registry of the drivers' migrations. The zero value refuses everything.
type Expectations struct {
	mu          sync.Mutex
	byMigration map[string]*expectation
}

type expectation struct {
	Expected
	done chan struct{}
}

// Expect admits connections from the source of a migration until forget ends them. It replaces the migration's earlier
// expectation.
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

// Incoming implements Registry. The error hides the expected values, which the peer may not know.
func (e *Expectations) Incoming(h migrationwire.Header, peerNode string) (Target, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.byMigration[h.MigrationUID]; x != nil && x.admits(h, peerNode) {
		return x.Target, nil
	}
	return Target{}, fmt.Errorf("this node expects no migration %.100q of VMI %.100s/%.100s (UID %.100q) from node %s",
		h.MigrationUID, h.Namespace, h.Name, h.VMIUID, peerNode)
}
