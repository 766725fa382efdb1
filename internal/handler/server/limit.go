package server

import (
	"fmt"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/nodeapi"
)

// maxStreams are how many streams of a kind one machine may have at a time. Each
// costs some ten KiB, and a client can make it a few MiB: together they must not
// exhaust the node. A port forward has one stream for each connection.
var maxStreams = map[nodeapi.Verb]int{
	nodeapi.Console: 16, nodeapi.VNC: 16, nodeapi.PortForward: 64,
}

// streams counts the streams of machines. The zero value counts none.
type streams struct {
	mu   sync.Mutex
	open map[streamKey]int
}

type streamKey struct {
	machine string
	verb    nodeapi.Verb
}

// limited is a route whose answer is a stream.
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

// begin counts one more, unless there are so many already.
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
