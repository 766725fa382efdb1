package guestagent

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
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
