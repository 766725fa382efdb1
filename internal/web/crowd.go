package web

import (
	"context"
	"net/http"
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
// has nothing open.
type crowd struct {
	mu    sync.Mutex
	all   map[string]int
	users map[string]map[string]int
	open  map[string]map[*session]int
}

func newCrowd() *crowd {
	return &crowd{all: map[string]int{}, users: map[string]map[string]int{}, open: map[string]map[*session]int{}}
}

// enter counts a stream or a request of a session until leave is called. The session has a context meanwhile, which ends
// when no time is left.
func (c *crowd) enter(ctx context.Context, one *session, left time.Duration, which string) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine := c.users[one.user]
	if mine[which] >= userBounds[which] {
		return nil, refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			"you have %d %s open, and may not have more: close some pages", userBounds[which], which)
	}
	if c.all[which] >= allBounds[which] {
		return nil, refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			"the users of the web console have %d %s open, and it serves no more: try again later", allBounds[which], which)
	}
	if mine == nil {
		mine = map[string]int{}
		c.users[one.user] = mine
	}
	mine[which]++
	c.all[which]++
	if one.end == nil {
		one.ctx, one.end = context.WithTimeout(ctx, left)
	}
	if c.open[one.id] == nil {
		c.open[one.id] = map[*session]int{}
	}
	c.open[one.id][one]++
	return func() { c.leave(one, which) }, nil
}

func (c *crowd) leave(one *session, which string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[which]--
	mine := c.users[one.user]
	if mine[which]--; mine[which] == 0 {
		delete(mine, which)
	}
	if len(mine) == 0 {
		delete(c.users, one.user)
	}
	same := c.open[one.id]
	if same[one]--; same[one] == 0 {
		delete(same, one)
		one.end()
	}
	if len(same) == 0 {
		delete(c.open, one.id)
	}
}

// end ends all that a session has open.
func (c *crowd) end(id string) {
	c.mu.Lock()
	var ends []context.CancelFunc
	for one := range c.open[id] {
		ends = append(ends, one.end)
	}
	c.mu.Unlock()
	for _, end := range ends {
		end()
	}
}
