package web

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// clock is a time that tests set.
type clock struct{ now time.Time }

func (c *clock) read() time.Time { return c.now }

func codeOf(err error) int32 {
	if status, is := err.(apierrors.APIStatus); is {
		return status.Status().Code
	}
	return 0
}

func TestAnAddressIsGoodOnceAndFiveMinutes(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	s := newSessions(t.Context(), c.read)
	used, _ := s.newCode()
	late, _ := s.newCode()
	if _, _, err := s.exchange(used); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.exchange(used); codeOf(err) != http.StatusGone || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("an address that is used twice: %v; want 410, and that somebody else may have used it", err)
	}
	c.now = c.now.Add(codeLife + time.Second)
	if _, _, err := s.exchange(late); codeOf(err) != http.StatusGone || !strings.Contains(err.Error(), "too old") {
		t.Errorf("an address after five minutes: %v; want 410", err)
	}
	for _, wrong := range []string{"", "x", strings.ToUpper(used), used + "="} {
		if _, _, err := s.exchange(wrong); codeOf(err) != http.StatusForbidden {
			t.Errorf("the code %q: %v; want 403", wrong, err)
		}
	}
}

func TestASessionNeedsBothHalves(t *testing.T) {
	s := newSessions(t.Context(), time.Now)
	begin := func() (string, string) {
		code, _ := s.newCode()
		cookie, secret, err := s.exchange(code)
		if err != nil {
			t.Fatal(err)
		}
		return cookie, secret
	}
	cookie, secret := begin()
	otherCookie, otherSecret := begin()
	if cookie == secret || len(cookie) < 40 {
		t.Fatalf("the halves are %q and %q", cookie, secret)
	}
	one, err := s.find([]string{"planted", cookie}, secret)
	if err != nil {
		t.Fatalf("the session with both halves: %v", err)
	}
	for name, half := range map[string]struct {
		cookies []string
		secret  string
	}{
		"no cookie":                {nil, secret},
		"no secret":                {[]string{cookie}, ""},
		"another session's cookie": {[]string{otherCookie}, secret},
		"another session's secret": {[]string{cookie}, otherSecret},
		"the halves exchanged":     {[]string{secret}, cookie},
	} {
		if _, err := s.find(half.cookies, half.secret); codeOf(err) != http.StatusUnauthorized {
			t.Errorf("%s: %v; want 401", name, err)
		}
	}
	s.remove(one)
	if _, err := s.find([]string{cookie}, secret); codeOf(err) != http.StatusUnauthorized || one.ctx.Err() == nil {
		t.Errorf("after its end: %v, its streams run on: %v", err, one.ctx.Err() == nil)
	}
	if _, err := s.find([]string{otherCookie}, otherSecret); err != nil {
		t.Errorf("the other session has ended, too: %v", err)
	}
}

func TestSessionsAreBoundedAndEndWithTheServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newSessions(ctx, time.Now)
	code, _ := s.newCode()
	cookie, secret, err := s.exchange(code)
	if err != nil {
		t.Fatal(err)
	}
	for range maxCodes - 1 {
		if _, ok := s.newCode(); !ok {
			t.Fatal("there are fewer codes than there may be")
		}
	}
	if _, ok := s.newCode(); ok {
		t.Errorf("there are more than %d codes", maxCodes)
	}
	one, err := s.find([]string{cookie}, secret)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if one.ctx.Err() == nil {
		t.Error("the session goes on after its server")
	}
}

func TestASessionHasOnlySoManyStreams(t *testing.T) {
	one := &room{open: map[string]int{}}
	var leave func()
	for range maxStreams {
		var err error
		if leave, err = one.enter(streams); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := one.enter(streams); codeOf(err) != http.StatusTooManyRequests {
		t.Errorf("one more: %v; want 429", err)
	}
	if _, err := one.enter(pending); err != nil {
		t.Errorf("a request beside the streams: %v", err)
	}
	leave()
	if _, err := one.enter(streams); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
