package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// codeLife is how long a code can be exchanged.
	codeLife = 5 * time.Minute
	// maxCodes bounds the codes that were given out, used ones included, and so the sessions.
	maxCodes = 16
	// maxStreams bounds the WebSockets of one session.
	maxStreams = 64
	// maxPending bounds the other requests that one session has at one time.
	maxPending = 64
)

// digest stands for a secret, so that comparing tells nothing of it by its time.
type digest [sha256.Size]byte

// session is the right to use the server. Of virtctl web, its two halves are a cookie, which pages can't read, and a
// secret, which other pages on this host don't get with the cookie. In a cluster it is made of its cookie for each
// request.
type session struct {
	cookie digest
	// id, user, party, token and about are of a person who has signed in.
	id, user, party, token string
	about                  signedIn
	// ctx ends with the session. That of a person is there only while something is open.
	ctx context.Context
	end context.CancelFunc
	// enter counts a stream, a pending request or a change until leave is called.
	enter func(which string) (leave func(), err error)
}

// room counts the open streams and requests of one session of virtctl web.
type room struct {
	mu   sync.Mutex
	open map[string]int
}

// sessions owns codes and sessions. They end with the process.
type sessions struct {
	ctx context.Context
	now func() time.Time

	mu sync.Mutex
	// codes are the times until which codes can be exchanged, zero for a used one.
	codes map[digest]time.Time
	open  map[digest]*session
}

func newSessions(ctx context.Context, now func() time.Time) *sessions {
	return &sessions{ctx: ctx, now: now, codes: map[digest]time.Time{}, open: map[digest]*session{}}
}

func newSecret() (string, digest) {
	var bytes [32]byte
	_, _ = rand.Read(bytes[:]) // never fails
	text := base64.RawURLEncoding.EncodeToString(bytes[:])
	return text, digestOf(text)
}

func digestOf(text string) digest { return sha256.Sum256([]byte(text)) }

// newCode returns a code, or false if there have been too many.
func (s *sessions) newCode() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.codes) >= maxCodes {
		return "", false
	}
	code, hash := newSecret()
	s.codes[hash] = s.now().Add(codeLife)
	return code, true
}

// exchange begins a session and returns its two halves.
func (s *sessions) exchange(code string) (cookie, secret string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := digestOf(code)
	until, known := s.codes[hash]
	switch {
	case !known:
		return "", "", forbidden("this address is not one of this server: use the address that it printed when it was started, or start it again")
	case until.IsZero():
		return "", "", refusal(http.StatusGone, metav1.StatusReasonGone,
			"this address was used already, and is good for one browser: if it was not you, somebody else may be using the web console with your rights: end it with Ctrl-C and start it again")
	case s.now().After(until):
		return "", "", refusal(http.StatusGone, metav1.StatusReasonExpired,
			"this address is too old: it is good for five minutes: start the web console again")
	}
	s.codes[hash] = time.Time{}
	one := &session{enter: (&room{open: map[string]int{}}).enter}
	one.ctx, one.end = context.WithCancel(s.ctx)
	cookie, one.cookie = newSecret()
	secret, hash = newSecret()
	s.open[hash] = one
	return cookie, secret, nil
}

// find returns the session of both halves. There may be several cookies of the name.
func (s *sessions) find(cookies []string, secret string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.open[digestOf(secret)]; one != nil {
		for _, cookie := range cookies {
			if digestOf(cookie) == one.cookie {
				return one, nil
			}
		}
	}
	return nil, refusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized,
		"there is no session, or it is over: start the web console again and open the address that it prints")
}

func (s *sessions) remove(gone *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, one := range s.open {
		if one == gone {
			delete(s.open, hash)
		}
	}
	gone.end()
}

const (
	streams = "WebSockets"
	pending = "requests"
)

func (m *room) enter(which string) (leave func(), err error) {
	limit := map[string]int{streams: maxStreams, pending: maxPending, changes: maxPending}[which]
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open[which] >= limit {
		return nil, refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			"this session has %d %s open, and may not have more: close some of its pages", limit, which)
	}
	m.open[which]++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.open[which]--
	}, nil
}
