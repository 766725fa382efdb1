package web

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// changes are requests with a body, which is in memory as a whole.
const changes = "changes"

// Bounds of a server that many people use: of one user in all his sessions, and of all users together.
var (
	userBounds = map[string]int{streams: maxStreams, pending: 32, changes: 8}
	allBounds  = map[string]int{streams: 512, pending: 256, changes: 32}
)

// crowd counts the open streams and requests of all users, and ends those of a session. It has nothing of a user who
// has nothing open. When it is full, the party that has the most makes room for one that has less, so that no tenant
// shuts others out, however many accounts he makes.
type crowd struct {
	mu sync.Mutex
	// open are streams and requests, the oldest first.
	open []*place
}

// place is an open stream or request.
type place struct {
	one   *session
	which string
}

func newCrowd() *crowd { return &crowd{} }

// partyOf returns who shares the server as one. Whoever may make accounts in a namespace may make as many as he likes.
func partyOf(username string) string {
	account, is := strings.CutPrefix(username, "system:serviceaccount:")
	if !is {
		return "user " + username
	}
	namespace, _, _ := strings.Cut(account, ":")
	return "namespace " + namespace
}

// enter counts a stream or a request of a session until leave is called. The session has a context meanwhile, which ends
// when no time is left, or when the place is needed for others.
func (c *crowd) enter(ctx context.Context, one *session, left time.Duration, which string) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	byUser := c.count(which, userOf)
	if byUser[one.user] >= userBounds[which] {
		return nil, refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			"you have %d %s open, and may not have more: close some pages", userBounds[which], which)
	}
	total := 0
	for _, n := range byUser {
		total += n
	}
	if total >= allBounds[which] {
		victim := c.victim(which, one)
		if victim == nil {
			return nil, refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
				"the users of the web console have %d %s open, and it serves no more: try again later", allBounds[which], which)
		}
		c.remove(victim)
		victim.one.end()
	}
	if one.end == nil {
		one.ctx, one.end = context.WithTimeout(ctx, left)
	}
	mine := &place{one, which}
	c.open = append(c.open, mine)
	return func() { c.leave(mine) }, nil
}

func userOf(one *session) string  { return one.user }
func partyIn(one *session) string { return one.party }

func (c *crowd) count(which string, by func(*session) string) map[string]int {
	counts := map[string]int{}
	for _, p := range c.open {
		if p.which == which {
			counts[by(p.one)]++
		}
	}
	return counts
}

// victim returns the place that makes room for one of a session: the latest of the user who has the most in the party that
// has the most. There is none if the newcomer would have more than he afterwards, or the newcomer's party more than his.
func (c *crowd) victim(which string, newcomer *session) *place {
	byParty, byUser := c.count(which, partyIn), c.count(which, userOf)
	var found *place
	for _, p := range c.open {
		if p.which != which {
			continue
		}
		if found == nil || cmp.Or(
			cmp.Compare(byParty[p.one.party], byParty[found.one.party]),
			cmp.Compare(p.one.party, found.one.party),
			cmp.Compare(byUser[p.one.user], byUser[found.one.user]),
		) >= 0 {
			found = p
		}
	}
	switch {
	case found == nil:
		return nil
	case found.one.party == newcomer.party && byUser[found.one.user] > byUser[newcomer.user]+1:
		return found
	case byParty[found.one.party] > byParty[newcomer.party]+1:
		return found
	}
	return nil
}

func (c *crowd) leave(p *place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(p)
	if !slices.ContainsFunc(c.open, func(other *place) bool { return other.one == p.one }) {
		p.one.end()
	}
}

// remove does nothing for a place that was needed for others.
func (c *crowd) remove(p *place) {
	if at := slices.Index(c.open, p); at >= 0 {
		c.open = slices.Delete(c.open, at, at+1)
	}
}

// end ends all that a session has open.
func (c *crowd) end(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.open {
		if p.one.id == id {
			p.one.end()
		}
	}
}
