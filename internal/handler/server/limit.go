package server

import (
	"fmt"
	"net"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/greeting"
)

// callers limits the connections that have not shown virt-api's certificate yet. The zero value has none.
type callers struct {
	rooms greeting.Rooms
	open  sync.Map // net.Conn to *greeting.Caller
}

// A connection becomes active after its handshake, which the TLS configuration permits to virt-api alone.
func (c *callers) state(conn net.Conn, state http.ConnState) {
	if state == http.StateNew {
		c.open.Store(conn, c.rooms.Enter(conn.RemoteAddr(), func() { _ = conn.Close() }))
		return
	}
	found, ok := c.open.LoadAndDelete(conn)
	if !ok {
		return
	}
	caller, ok := found.(*greeting.Caller)
	if !ok {
		return
	}
	if state == http.StateActive {
		caller.Proven()
	}
	caller.Leave()
}

// maxStreams is the number of concurrent streams of a kind per machine: each takes some ten KiB, or a few MiB with a
// hostile client. A port forward has one for each connection.
var maxStreams = map[nodeapi.Verb]int{
	nodeapi.Console: 16, nodeapi.VNC: 16, nodeapi.PortForward: 64,
}

type streams struct {
	mu   sync.Mutex
	open map[streamKey]int
}

type streamKey struct {
	machine string
	verb    nodeapi.Verb
}

func (s *streams) limited(verb nodeapi.Verb, do route) route {
	return func(m Machine, w http.ResponseWriter, r *http.Request) error {
		key := streamKey{machine: m.ConsoleKey(), verb: verb}
		if alone := r.URL.Query().Get(nodeapi.PreserveSession) == "true"; alone && !s.begin(key, 1) {
			return apierrors.NewConflict(v1.Resource("virtualmachineinstance"), r.PathValue("name"), fmt.Errorf(
				"a session of %s is active and %s keeps it; ask without that to share it", verb, nodeapi.PreserveSession))
		} else if !alone && !s.begin(key, maxStreams[verb]) {
			return apierrors.NewTooManyRequests(fmt.Sprintf(
				"VMI %s has %d streams of %s already, which is the most that one may have; close one of them",
				r.PathValue("name"), maxStreams[verb], verb), 1)
		}
		defer s.end(key)
		return do(m, w, r)
	}
}

func (s *streams) begin(key streamKey, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[key] >= most {
		return false
	}
	if s.open == nil {
		s.open = map[streamKey]int{}
	}
	s.open[key]++
	return true
}

func (s *streams) end(key streamKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[key]--; s.open[key] == 0 {
		delete(s.open, key)
	}
}
