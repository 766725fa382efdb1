// Package pulse judges, for tests, what guests with a pulse answer when they are asked again and again in all
// their pods: a guest that migrates lives in one place at a time, never returns to one that it has left, and
// never forgets what it has counted.
//
// It owns the judgement only: who asks, and how, is the test's. The guest's side is in test/guest/guestd.
// Nothing but tests may import it.
package pulse

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Port is where a guest with a pulse answers, by UDP.
const Port = 7778

// Answer is what a guest says.
type Answer struct {
	// Question is the number of the question.
	Question    uint64
	Guest, Boot string
	Beats       uint64
	// Trouble is what is wrong, such as a disk that another guest has written to.
	Trouble string
}

// Parse reads an answer.
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

// Sighting is the last that was heard of a guest.
type Sighting struct {
	Pod, Boot string
	Beats     uint64
	// Asked is the newest question that the guest has answered there.
	Asked uint64
}

// Record is what was heard of all guests. The zero value is empty.
type Record struct {
	mu     sync.Mutex
	asked  uint64
	guests map[string]*guest
	wrong  error
}

// guest is what is known of one.
type guest struct {
	Sighting
	// known is the newest question that had been asked when the last answer came: what is asked later is answered
	// by a guest that is later.
	known uint64
	// left has the places and the boots that the guest has left, and the newest question that had been asked
	// when it was heard from elsewhere. An answer to an older one may have been under way.
	left map[string]uint64
}

// Ask returns the number of the next question.
func (r *Record) Ask() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return r.asked
}

// Asked is the number of the newest question.
func (r *Record) Asked() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// Last is the last that was heard of a guest; it is empty if nothing was.
func (r *Record) Last(name string) Sighting {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.guests[name]; g != nil {
		return g.Sighting
	}
	return Sighting{}
}

// Err is the first thing that was wrong.
func (r *Record) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wrong
}

// Answered takes an answer that has come from a pod.
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

// moved takes note of where a guest answers from.
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
