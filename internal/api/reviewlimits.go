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

	"drydock.dev/drydock/internal/rules/object/listbounds"
)

// A text costs allocated bytes, of which a part is in use at one time. TestWhatAReviewCosts measures them.
const (
	costOfAByte  = 80
	costOfAValue = 8 << 10
	leastCost    = 64 << 10
)

// The texts that are judged at one time may cost 640 MiB, within virt-api's limit in config/deploy/api.yaml.
const (
	smallRoom = 192 << 20
	largeRoom = 448 << 20
	// smallCost lets many small texts be judged at one time, so that none waits for long.
	smallCost = 16 << 20
	// textsAtATime bounds, in bytes, the texts that wait to be judged, small and large ones separately.
	textsAtATime = 24 << 20
)

const (
	// longestText bounds, in bytes, the text that is read: an object of the API server's maximum size, before and
	// after.
	longestText = 7 << 20
	// smallReview bounds, in bytes, a review that is read at once. kube-apiserver has all of it when it begins to
	// send.
	smallReview = smallCost / costOfAByte
	// smallBody bounds, in bytes, another body that is read at once. Users may send as slowly as they like.
	smallBody = 4 << 10
	// headSize is how many bytes of a large text are read to determine its lane.
	headSize    = 64 << 10
	readTimeout = 10 * time.Second
	// maxWaiting is how many large texts of one lane may wait or be judged.
	maxWaiting = 5
)

func costOf(text []byte) int64 {
	return max(leastCost, costOfAByte*int64(len(text))+costOfAValue*int64(listbounds.Count(text)))
}

// room is virt-api's memory for received texts. Small texts wait only for small ones. Of the large ones each lane, a
// namespace or a user, has one at a time, so that nobody waits for everything that another has sent.
type room struct {
	small, large *semaphore.Weighted
	lanes        lanes
}

func newRoom() *room {
	return &room{small: semaphore.NewWeighted(smallRoom), large: semaphore.NewWeighted(largeRoom), lanes: lanes{taken: map[string]*lane{}}}
}

type sender interface {
	// lane returns the lane of a large request from the beginning of its text.
	lane(r *http.Request, head []byte) string
	refuse(w http.ResponseWriter, head []byte, err error)
}

type entrance struct {
	room *room
	from sender
	// small bounds, in bytes, a text that is read at once.
	small                  int64
	patience               time.Duration
	smallTexts, largeTexts *semaphore.Weighted
}

func (m *room) entrance(from sender, small int64) *entrance {
	return &entrance{
		room: m, from: from, small: small, patience: readTimeout,
		smallTexts: semaphore.NewWeighted(textsAtATime), largeTexts: semaphore.NewWeighted(textsAtATime),
	}
}

// Requests wait that would together exceed virt-api's memory. A stream takes no turn, which would last as long as it: the
// body of a GET is not read.
func (e *entrance) inTurn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 || r.Method == http.MethodGet {
			r.Body, r.ContentLength = http.NoBody, 0
			next.ServeHTTP(w, r)
			return
		}
		v := &visit{entrance: e, w: w, r: r, body: bufio.NewReaderSize(r.Body, headSize)}
		defer v.leave()
		if err := v.enter(r.Context()); err != nil {
			// A client that can't send all of a refused text would not see the response. A slow sender loses the
			// connection.
			v.mustArriveBy(time.Now().Add(v.patience))
			_, _ = io.Copy(io.Discard, io.LimitReader(v.body, longestText))
			e.from.refuse(w, v.head, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(v.text))
		next.ServeHTTP(w, r)
	})
}

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

// The rest of the text may wait as long as the client does.
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

// mustArriveBy sets the deadline for reading from the client; the zero time removes it.
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

type lanes struct {
	mu    sync.Mutex
	taken map[string]*lane
}

type lane struct {
	// turn holds the visit that has its turn.
	turn   chan struct{}
	visits int
}

// If too many wait already, enter returns an error at once.
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
