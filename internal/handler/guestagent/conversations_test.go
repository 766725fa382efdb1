package guestagent

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/qemu/agent"
)

func TestOnlySoManyAgentsAreTalkedToAtATime(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, layout.AgentSocket))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	private, err := podpath.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer private.Close()
	const places = 3
	a := New(Env{Dial: func(ctx context.Context) (net.Conn, error) { return private.Dial(ctx, layout.AgentSocket) }, Places: make(Places, places)}, nil)
	talking, end := make(chan struct{}), make(chan struct{})
	var conversations sync.WaitGroup
	for range places {
		conversations.Go(func() {
			err := a.Talk(t.Context(), func(context.Context, *agent.Client) error {
				talking <- struct{}{}
				<-end
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for range places {
		<-talking
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err = a.Talk(short, func(context.Context, *agent.Client) error {
		t.Error("one more conversation goes on")
		return nil
	})
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("one more is answered %v, want 429", err)
	}
	close(end)
	conversations.Wait()
	if err := a.Talk(t.Context(), func(context.Context, *agent.Client) error { return nil }); err != nil {
		t.Errorf("after they have ended: %v", err)
	}
}

// A tenant asks a silent agent again and again: the node's places must stay for other guests.
func TestAGuestHasFewConversationsForUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := NewPlaces()
		silent := func(context.Context) (net.Conn, error) {
			near, _ := net.Pipe()
			return near, nil
		}
		a, other := New(Env{Dial: silent, Places: places}, nil), New(Env{Dial: silent, Places: places}, nil)
		a.open, other.open = true, true
		var asked sync.WaitGroup
		began, refused := time.Now(), atomic.Int32{}
		for range 2 * maxConversations {
			asked.Go(func() {
				_, err := a.UserList(t.Context())
				if err == nil || time.Since(began) > timeout {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				if apierrors.IsTooManyRequests(err) {
					refused.Add(1)
				}
			})
			synctest.Wait()
		}
		if len(places) != maxForUsers {
			t.Errorf("%d places are taken, want %d", len(places), maxForUsers)
		}
		asked.Go(func() { _, _ = other.UserList(t.Context()) })
		synctest.Wait()
		if len(places) != maxForUsers+1 {
			t.Errorf("%d places are taken after another guest was asked", len(places))
		}
		asked.Wait()
		if refused.Load() == 0 {
			t.Error("nobody was told that the agent is busy")
		}
		if len(a.users) != 0 || len(places) != 0 {
			t.Errorf("%d conversations and %d places are left", len(a.users), len(places))
		}
	})
}
