package power

import "slices"

// Request is a user's request to a guest.
type Request string

// The requests. PressKeys is the second part of a Reboot, for a guest without an agent.
const (
	Pause     Request = "pause"
	Unpause   Request = "unpause"
	Reset     Request = "reset"
	Reboot    Request = "reboot"
	PressKeys Request = "press keys"
)

// Answer is the decision on a request that arrives.
type Answer string

// The answers. An ignored request gets the result of the equal one.
const (
	Accepted Answer = "accepted"
	Ignored  Answer = "ignored"
	Refused  Answer = "refused"
)

// Ticket is a place in the queue.
type Ticket struct {
	Number  uint64
	Request Request
}

type entry struct {
	Ticket
	users int // who wait for the result
}

// most bounds the waiting users and the taken requests: users may ask without limit.
const most = 64

// Queue has the requests without a result: waiting in the order of their arrival, or taken. The zero value is open
// and empty. In a closed queue no request waits.
//
//	Add ──> waiting ──Take──> taken ──Finish──> gone
//	           '──Drop of the last user──────────^
type Queue struct {
	last           uint64
	waiting, taken []entry
	closed         string // why all requests are refused, "" for none
}

// Add adds a request. The ticket is for the result, reason for a refusal.
//
// Two waiting resets or reboots are one, and so is a reboot after a taken one, which may wait long for the guest's agent.
// A second pause is not ignored: its answer depends on the first one's success.
func (q Queue) Add(r Request) (next Queue, of Ticket, answer Answer, reason string) {
	if q.closed != "" {
		return q, Ticket{}, Refused, q.closed
	}
	if q.load() >= most && r != PressKeys { // the second part of a request that had its turn
		return q, Ticket{}, Refused, "too many requests to the VMI wait for an answer; try again"
	}
	next = q
	reboots := func(e entry) bool { return e.Request == Reboot }
	if at := slices.IndexFunc(q.taken, reboots); r == Reboot && at >= 0 {
		next.taken = withUsers(q.taken, at, 1)
		return next, next.taken[at].Ticket, Ignored, ""
	}
	if at := len(q.waiting) - 1; at >= 0 && q.waiting[at].Request == r && (r == Reset || r == Reboot) {
		next.waiting = withUsers(q.waiting, at, 1)
		return next, next.waiting[at].Ticket, Ignored, ""
	}
	next.last++
	of = Ticket{next.last, r}
	next.waiting = append(slices.Clone(q.waiting), entry{of, 1})
	return next, of, Accepted, ""
}

func find(list []entry, of Ticket) int {
	return slices.IndexFunc(list, func(e entry) bool { return e.Ticket == of })
}

func withUsers(list []entry, at, more int) []entry {
	list = slices.Clone(list)
	list[at].users += more
	return list
}

// A taken request counts also when its users have gone.
func (q Queue) load() (n int) {
	for i := range q.waiting {
		n += q.waiting[i].users
	}
	for i := range q.taken {
		n += max(1, q.taken[i].users)
	}
	return n
}

// Drop removes a user who no longer waits. dropped means that nobody waits for the request, which has no effect. A taken
// request is never dropped.
func (q Queue) Drop(of Ticket) (next Queue, dropped bool) {
	next = q
	if at := find(q.taken, of); at >= 0 {
		next.taken = withUsers(q.taken, at, -1)
		return next, false
	}
	at := find(q.waiting, of)
	if at < 0 {
		return q, false
	}
	next.waiting = withUsers(q.waiting, at, -1)
	if next.waiting[at].users > 0 {
		return next, false
	}
	next.waiting = slices.Delete(next.waiting, at, at+1)
	return next, true
}

// Take returns all waiting requests. They stay until Finish.
func (q Queue) Take() (next Queue, turn []Ticket) {
	for i := range q.waiting {
		turn = append(turn, q.waiting[i].Ticket)
	}
	next = q
	next.waiting, next.taken = nil, slices.Concat(q.taken, q.waiting)
	return next, turn
}

// Finish removes a taken request.
func (q Queue) Finish(of Ticket) Queue {
	q.taken = slices.DeleteFunc(slices.Clone(q.taken), func(e entry) bool { return e.Ticket == of })
	return q
}

// Close refuses later requests. The caller takes the waiting ones.
func (q Queue) Close(reason string) Queue {
	q.closed = reason
	return q
}
