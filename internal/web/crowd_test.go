package web

import (
	"net/http"
	"testing"
	"time"
)

// person returns a session of an account.
func person(username, id string) *session {
	return &session{user: username, party: partyOf(username), id: id}
}

// fill enters as often as told and returns how to leave.
func fill(t *testing.T, c *crowd, which string, times int, next func(n int) *session) (leave func(), all []*session) {
	t.Helper()
	var leaves []func()
	for n := range times {
		one := next(n)
		left, err := c.enter(t.Context(), one, time.Hour, which)
		if err != nil {
			t.Fatalf("%s %d: %v", which, n, err)
		}
		leaves, all = append(leaves, left), append(all, one)
	}
	return func() {
		for _, left := range leaves {
			left()
		}
	}, all
}

func TestAUsersShareAndThatOfAllAreBounded(t *testing.T) {
	c := newCrowd()
	for which, limit := range userBounds {
		leave, _ := fill(t, c, which, limit, func(n int) *session { return person("a", string(rune('x'+n%3))) })
		if _, err := c.enter(t.Context(), person("a", "new"), time.Hour, which); codeOf(err) != http.StatusTooManyRequests {
			t.Errorf("one more of %s, by another session: %v; want 429", which, err)
		}
		other, _ := fill(t, c, which, 1, func(int) *session { return person("b", "other") })
		other()
		leave()
	}
	for which, limit := range allBounds {
		leave, _ := fill(t, c, which, limit, func(n int) *session { return person(string(rune('a'+n)), "x") })
		if _, err := c.enter(t.Context(), person("late", "x"), time.Hour, which); codeOf(err) != http.StatusTooManyRequests {
			t.Errorf("one more of all users' %s, where each has one: %v; want 429", which, err)
		}
		leave()
	}
	if len(c.open) > 0 {
		t.Errorf("it remembers users who have nothing open: %v", c.open)
	}
}

// A tenant makes as many accounts in his namespace as he likes, and each has a user's share.
func TestATenantsAccountsDontShutOthersOut(t *testing.T) {
	for which, limit := range allBounds {
		t.Run(which, func(t *testing.T) {
			c := newCrowd()
			leave, his := fill(t, c, which, limit, func(n int) *session {
				return person("system:serviceaccount:his:"+string(rune('a'+n/userBounds[which])), "x")
			})
			defer leave()
			if _, err := c.enter(t.Context(), person("system:serviceaccount:his:more", "x"), time.Hour, which); err != nil {
				t.Errorf("another account of his, which has nothing: %v; want a part of his own share", err)
			}
			left, err := c.enter(t.Context(), person("alice", "x"), time.Hour, which)
			if err != nil {
				t.Fatalf("another user is refused: %v", err)
			}
			defer left()
			ended := 0
			for _, one := range his {
				if one.ctx.Err() != nil {
					ended++
				}
			}
			if ended != 2 || len(c.open) != limit {
				t.Errorf("%d of his have ended, and %d are open; want 2, and %d", ended, len(c.open), limit)
			}
		})
	}
}

// Who has less makes no room for who has more, or two would displace each other for ever.
func TestAPartyMakesRoomUntilBothHaveTheSame(t *testing.T) {
	c := newCrowd()
	all := allBounds[streams]
	leave, _ := fill(t, c, streams, all, func(n int) *session { return person("system:serviceaccount:one:"+string(rune('a'+n/maxStreams)), "x") })
	defer leave()
	taken := 0
	for n := range all {
		left, err := c.enter(t.Context(), person("system:serviceaccount:two:"+string(rune('a'+n/(maxStreams/2))), "x"), time.Hour, streams)
		if err != nil {
			continue
		}
		taken++
		defer left()
	}
	if counts := c.count(streams, partyIn); counts[partyOf("system:serviceaccount:one:a")] != all/2 || counts[partyOf("system:serviceaccount:two:a")] != all/2 {
		t.Errorf("after %d streams of the other, the parties have %v; want each half of %d", taken, counts, all)
	}
}

func TestAnAccountCountsWithItsNamespace(t *testing.T) {
	for name, want := range map[string]string{
		"system:serviceaccount:lab:one": "namespace lab", "system:serviceaccount:lab:two": "namespace lab",
		"alice": "user alice", "namespace lab": "user namespace lab", "oidc:system:serviceaccount:lab:one": "user oidc:system:serviceaccount:lab:one",
	} {
		if got := partyOf(name); got != want {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}
}

func TestASessionsContextEndsWithItsTimeAndWhenNothingIsOpen(t *testing.T) {
	c := newCrowd()
	one := &session{user: "a", id: "x"}
	leave, err := c.enter(t.Context(), one, time.Hour, pending)
	if err != nil || one.ctx.Err() != nil {
		t.Fatalf("while a request is open: %v, %v", err, one.ctx.Err())
	}
	leave()
	if one.ctx.Err() == nil {
		t.Error("the context is there after the last request")
	}
	late := &session{user: "a", id: "y"}
	if _, err := c.enter(t.Context(), late, time.Millisecond, streams); err != nil {
		t.Fatal(err)
	}
	select {
	case <-late.ctx.Done():
	case <-time.After(deadline):
		t.Error("a stream goes on after its session's time")
	}
}
