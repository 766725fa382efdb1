package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"drydock.dev/drydock/internal/rules/listbounds"
)

// What a text costs virt-api until it is judged: so many bytes are allocated for it, a part of which is in use at one time.
// TestWhatAReviewCosts measures it.
const (
	costOfAByte  = 80
	costOfAValue = 8 << 10
	// leastCost is what anything costs.
	leastCost = 64 << 10
)

// What is judged at one time may cost 640 MiB, which fit into virt-api's limit in config/deploy/api.yaml. Small texts have a
// part of it that no large one takes.
const (
	smallRoom = 192 << 20
	largeRoom = 448 << 20
	// smallCost is what a small text costs at most: so many of them are judged at one time that none waits for long.
	smallCost = 16 << 20
	// textsAtATime is how long the texts may be together that wait to be judged, small ones and large ones each.
	textsAtATime = 24 << 20
)

const (
	// longestText is how much of a text is read: an object of the API server's greatest size, before and after.
	longestText = 7 << 20
	// smallReview is how long a review may be to be read at once. kube-apiserver has all of it when it begins to send.
	smallReview = smallCost / costOfAByte
	// smallBody is how long another body may be to be read at once. Users may send as slowly as they like.
	smallBody = 4 << 10
	// headSize is how much is read of a large text to know whose it is.
	headSize = 64 << 10
	// readTimeout is how long a text may take to arrive.
	readTimeout = 10 * time.Second
	// maxWaiting is how many large texts of one lane may wait or be judged. The next is refused at once.
	maxWaiting = 5
)

// costOf is what a text counts for.
func costOf(text []byte) int64 {
	return max(leastCost, costOfAByte*int64(len(text))+costOfAValue*int64(listbounds.Count(text)))
}

// room is the memory that virt-api has for what others send. Small texts wait for small ones alone. Of the large ones each
// lane, which is a namespace or a user, has one at a time, so that nobody waits for all that another has sent.
type room struct {
	small, large *semaphore.Weighted
	lanes        lanes
}

func newRoom() *room {
	return &room{small: semaphore.NewWeighted(smallRoom), large: semaphore.NewWeighted(largeRoom), lanes: lanes{taken: map[string]*lane{}}}
}

// sender is a kind of requests.
type sender interface {
	// lane is the name of the lane that a large request takes, by the beginning of its text.
	lane(r *http.Request, head []byte) string
	// refuse answers a request for which there is no room.
	refuse(w http.ResponseWriter, head []byte, err error)
}

// entrance is where the requests of one kind come into the room.
type entrance struct {
	room *room
	from sender
	// small is how long a text may be to be read at once.
	small int64
	// patience is how long a text may take to arrive.
	patience time.Duration
	// smallTexts and largeTexts are for texts that are read and wait.
	smallTexts, largeTexts *semaphore.Weighted
}

func (m *room) entrance(from sender, small int64) *entrance {
	return &entrance{
		room: m, from: from, small: small, patience: readTimeout,
		smallTexts: semaphore.NewWeighted(textsAtATime), largeTexts: semaphore.NewWeighted(textsAtATime),
	}
}

// inTurn has requests wait that together would be too large for virt-api's memory. What has no text has no cost, and a
// stream is none.
func (e *entrance) inTurn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 || r.Header.Get("Upgrade") != "" {
			next.ServeHTTP(w, r)
			return
		}
		v := &visit{entrance: e, w: w, r: r, body: bufio.NewReaderSize(r.Body, headSize)}
		defer v.leave()
		if err := v.enter(r.Context()); err != nil {
			v.discard()
			e.from.refuse(w, v.head, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(v.text))
		next.ServeHTTP(w, r)
	})
}

// visit is a request that comes in.
type visit struct {
	*entrance
	w          http.ResponseWriter
	r          *http.Request
	body       *bufio.Reader
	head, text []byte
	held       []func()
}

func (v *visit) leave() {
	for _, release := range v.held {
		release()
	}
}

// enter waits until there is room for the request, and reads its text.
func (v *visit) enter(ctx context.Context) error {
	length := v.r.ContentLength
	if length < 0 || length > longestText {
		length = longestText
	}
	small := length <= v.small
	if small {
		if err := v.read(ctx, v.smallTexts, length); err != nil {
			return err
		}
		v.head = v.text
		if cost := costOf(v.text); cost <= smallCost {
			return v.take(ctx, v.room.small, cost)
		}
	} else {
		if err := v.look(); err != nil {
			return err
		}
	}
	leave, err := v.room.lanes.enter(ctx, v.from.lane(v.r, v.head))
	if err != nil {
		return err
	}
	v.held = append(v.held, leave)
	if !small {
		if err := v.read(ctx, v.largeTexts, length); err != nil {
			return err
		}
	}
	return v.take(ctx, v.room.large, min(costOf(v.text), largeRoom))
}

// look reads the beginning of the text. The rest may wait for its turn as long as the client does.
func (v *visit) look() error {
	v.mustArriveBy(time.Now().Add(v.patience))
	defer v.mustArriveBy(time.Time{})
	head, err := v.body.Peek(headSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return unread(err)
	}
	v.head = bytes.Clone(head)
	return nil
}

// read reads the text, when there is room for it.
func (v *visit) read(ctx context.Context, texts *semaphore.Weighted, length int64) error {
	if err := v.take(ctx, texts, length); err != nil {
		return err
	}
	v.mustArriveBy(time.Now().Add(v.patience))
	text := bytes.NewBuffer(make([]byte, 0, length+bytes.MinRead))
	if _, err := text.ReadFrom(io.LimitReader(v.body, longestText+1)); err != nil {
		return unread(err)
	}
	v.mustArriveBy(time.Time{})
	v.text = text.Bytes()
	return nil
}

// discard reads what is left of a text that is refused, without keeping it: a client that can't send all of it does not see
// why. Who sends slowly loses the connection.
func (v *visit) discard() {
	v.mustArriveBy(time.Now().Add(v.patience))
	_, _ = io.Copy(io.Discard, io.LimitReader(v.body, longestText))
}

// mustArriveBy bounds how long the client may take to send; the zero time ends that.
func (v *visit) mustArriveBy(when time.Time) {
	// Only a real connection has deadlines.
	_ = http.NewResponseController(v.w).SetReadDeadline(when)
}

func (v *visit) take(ctx context.Context, from *semaphore.Weighted, cost int64) error {
	if err := from.Acquire(ctx, cost); err != nil {
		return tooMany()
	}
	v.held = append(v.held, func() { from.Release(cost) })
	return nil
}

func unread(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("reading the request's body: %v", err))
}

func tooMany() error {
	return apierrors.NewTimeoutError("too many large objects are being judged at this time", 1)
}

// lanes are those that have large texts waiting or judged.
type lanes struct {
	mu    sync.Mutex
	taken map[string]*lane
}

type lane struct {
	// turn has room for the one whose turn it is.
	turn chan struct{}
	// visits are all that wait or have their turn.
	visits int
}

// enter waits for a lane's turn. Where many wait already it is an error at once.
func (l *lanes) enter(ctx context.Context, name string) (leave func(), err error) {
	l.mu.Lock()
	entered := l.taken[name]
	if entered == nil {
		entered = &lane{turn: make(chan struct{}, 1)}
		l.taken[name] = entered
	}
	crowded := entered.visits >= maxWaiting
	if !crowded {
		entered.visits++
	}
	l.mu.Unlock()
	if crowded {
		return nil, apierrors.NewTooManyRequests("others of your large objects are being judged at this time; send this one again when they are", 1)
	}
	gone := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if entered.visits--; entered.visits == 0 {
			delete(l.taken, name)
		}
	}
	select {
	case entered.turn <- struct{}{}:
		return func() { <-entered.turn; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, tooMany()
	}
}
