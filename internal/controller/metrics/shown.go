package metrics

import (
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// They bound the label values that a VMI's guest agent chooses: each is a new series for Prometheus.
const (
	maxShown   = 64
	shownEvery = time.Hour
)

// shown remembers the label values that guest agents chose. The zero value is ready to use.
type shown struct {
	mu sync.Mutex
	of map[types.UID]*shownOf
}

type shownOf struct {
	// values are hashes, as a guest chooses the size of its values.
	values map[uint64]bool
	limit  *rate.Limiter
}

var shownSeed = maphash.MakeSeed()

// bound returns the values, or empty ones if the VMI has shown too many others. It counts combinations of values, each of
// which is a series.
func (s *shown) bound(vmi types.UID, now time.Time, values ...string) []string {
	key := maphash.String(shownSeed, fmt.Sprintf("%q", values)) // quoted, since a value may have any separator
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of[vmi]
	if of == nil {
		if s.of == nil {
			s.of = map[types.UID]*shownOf{}
		}
		of = &shownOf{values: map[uint64]bool{}, limit: rate.NewLimiter(rate.Every(shownEvery), maxShown)}
		s.of[vmi] = of
	}
	switch {
	case of.values[key]:
		return values
	case !of.limit.AllowN(now, 1):
		return make([]string, len(values))
	case len(of.values) == maxShown:
		clear(of.values) // of a VMI that has run for long: values that it still has are new again
	}
	of.values[key] = true
	return values
}

// keep forgets all other VMIs.
func (s *shown) keep(these map[types.UID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for vmi := range s.of {
		if !these[vmi] {
			delete(s.of, vmi)
		}
	}
}
