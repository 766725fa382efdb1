// Package pulse checks the answers of guests with a pulse in all their pods: a migrating guest runs in one place
// at a time, never returns to a place that it has left, and never loses its count.
//
// It must not send queries: the test does. The guest's part is in test/guest/guestd. Only tests may import it.
package pulse

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Port is the UDP port of a guest with a pulse.
const Port = 7778

// Answer is a guest's answer.
type Answer struct {
	Question    uint64
	Guest, Boot string
	Beats       uint64
	// Trouble is an error such as a disk that another guest has written to.
	Trouble string
}

// Parse parses an answer.
func Parse(text string) (Answer, error) {
	parts := strings.SplitN(text, " ", 5)
	if len(parts) < 4 {
		return Answer{}, fmt.Errorf("%q is no answer", text)
	}
	question, err := strconv.ParseUint(parts[0], 10, 64)
	if err != nil {
		return Answer{}, fmt.Errorf("reading the question in %q: %w", text, err)
	}
	beats, err := strconv.ParseUint(parts[3], 10, 64)
	if err != nil {
		return Answer{}, fmt.Errorf("reading the beats in %q: %w", text, err)
	}
	return Answer{Question: question, Guest: parts[1], Boot: parts[2], Beats: beats, Trouble: strings.Join(parts[4:], "")}, nil
}

// Sighting is the last observation of a guest.
type Sighting struct {
	Pod, Boot string
	Beats     uint64
	// Asked is the newest question that the guest has answered there.
	Asked uint64
}

// Record has the observations of all guests. The zero value is empty.
type Record struct {
	mu     sync.Mutex
	asked  uint64
	guests map[string]*guest
	wrong  error
}

type guest struct {
	Sighting
	// known is the newest question at the time of the last answer: later questions are answered by a later
	// state of the guest.
	known uint64
	// left has the places and boots that the guest has left, with the newest question when the guest was
	// observed elsewhere. An answer to an older question may have been in flight.
	left map[string]uint64
}

// Ask returns the next question's number.
func (r *Record) Ask() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return r.asked
}

// Asked returns the newest question's number.
func (r *Record) Asked() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// Last returns the last observation of a guest, empty if there is none.
func (r *Record) Last(name string) Sighting {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.guests[name]; g != nil {
		return g.Sighting
	}
	return Sighting{}
}

// Err returns the first violation.
func (r *Record) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wrong
}

// Answered checks an answer from a pod.
func (r *Record) Answered(pod string, a Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.guests == nil {
		r.guests = map[string]*guest{}
	}
	g := r.guests[a.Guest]
	if g == nil {
		g = &guest{Sighting: Sighting{Pod: pod, Boot: a.Boot}, left: map[string]uint64{}}
		r.guests[a.Guest] = g
	}
	if a.Trouble != "" {
		r.fail("%s says in pod %s: %s", a.Guest, pod, a.Trouble)
	}
	for _, place := range []string{a.Boot, pod + " " + a.Boot} {
		until, left := g.left[place]
		if left && a.Question > until {
			r.fail("two live guests of %s: pod %s (boot %s, beat %d) answers question %d, and pod %s (boot %s, beat %d) had answered before it was asked",
				a.Guest, pod, a.Boot, a.Beats, a.Question, g.Pod, g.Boot, g.Beats)
		}
		if left {
			return
		}
	}
	g.moved(pod, a.Boot, r.asked)
	if a.Question > g.known && a.Beats < g.Beats {
		r.fail("%s in pod %s has forgotten what it had counted: beat %d after beat %d", a.Guest, pod, a.Beats, g.Beats)
	}
	g.Beats, g.Asked, g.known = max(g.Beats, a.Beats), max(g.Asked, a.Question), r.asked
}

func (g *guest) moved(pod, boot string, asked uint64) {
	if g.Pod == pod && g.Boot == boot {
		return
	}
	g.left[g.Pod+" "+g.Boot] = asked
	if g.Boot != boot {
		g.left[g.Boot] = asked
		g.Beats = 0
	}
	g.Pod, g.Boot = pod, boot
}

func (r *Record) fail(format string, args ...any) {
	if r.wrong == nil {
		r.wrong = fmt.Errorf(format, args...)
	}
}
