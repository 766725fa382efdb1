// Package guestagent talks to the guest agent behind one QEMU's port: for a VMI's status, for metrics and for users.
//
// An Agent's state belongs to one QEMU. The guest may be hostile: each conversation has a deadline, each kept answer a
// limit. The package must not decide a VMI's status (package vmihandler), and must not know the API server.
package guestagent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"drydock.dev/drydock/internal/qemu/agent"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/accesscredential"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// timeout bounds a conversation with the guest agent, including the wait for another one (a probe's).
const timeout = 10 * time.Second

// maxConversations bounds the memory for hostile agents on the node, some 3 MiB each. A silent agent keeps its place for
// timeout, so there are more places than honest agents need, which answer in milliseconds.
const maxConversations = 16

// Places is a semaphore of concurrent conversations.
type Places chan struct{}

// NewPlaces returns the places of a node.
func NewPlaces() Places { return make(Places, maxConversations) }

// NewPlacesForFigures returns the places of conversations for figures, which need one of the others, too.
func NewPlacesForFigures() Places { return make(Places, maxForFigures) }

// Env has an Agent's dependencies.
type Env struct {
	Dial               func(ctx context.Context) (net.Conn, error)
	Places, ForFigures Places
	Record             *Record // the guest's
	// Go runs a goroutine that the owner waits for.
	Go   func(func())
	Wake func()
	// Credentials reads the guest's access credentials; nil if the VMI has none.
	Credentials func() (accesscredential.Delivery, error)
	Now         func() time.Time
	Log         logr.Logger
}

// Agent is the guest agent behind one QEMU's port. It is safe for concurrent use, but one goroutine calls SyncPolling and
// Close.
type Agent struct {
	env   Env
	users Places // of conversations for users

	mu   sync.Mutex
	open bool // a process in the guest has opened the port
	// heard means that QEMU has sent an event about the port.
	heard bool
	// answer outlives the agent for a while, and is never modified.
	answer      *vmihandler.Agent
	credentials *vmihandler.Credentials
	asked       time.Time
	// connected ends with the present agent; nil without one.
	connected context.Context
	// The fields below belong to SyncPolling. absentSince is when the port was found closed, zero without an answer to
	// forget.
	absentSince time.Time
	// stop ends polling; nil if there is none.
	stop context.CancelFunc
}

// Facts are the state of the agent.
type Facts struct {
	Connected bool // the port is open
	// Answer is nil before the first and when the agent has been gone for long. Do not modify it.
	Answer *vmihandler.Agent
	// Credentials is the result of the last attempt to set them, nil before the first.
	Credentials *vmihandler.Credentials
}

// New returns the Agent of a QEMU whose monitor is not connected yet. known is the answer to an earlier virt-handler,
// which counts until the next one.
func New(env Env, known *vmihandler.Agent) *Agent {
	return &Agent{env: env, answer: known, users: make(Places, maxForUsers)}
}

// Observe returns the current facts.
func (a *Agent) Observe() Facts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Facts{Connected: a.open, Answer: a.answer, Credentials: a.credentials}
}

// HandleEvent records QEMU's events about the port, and reports whether to call SyncPolling.
func (a *Agent) HandleEvent(e qmp.Event) bool {
	if e.Name != "VSERPORT_CHANGE" {
		return false
	}
	var change struct {
		ID   string `json:"id"`
		Open bool   `json:"open"`
	}
	if err := json.Unmarshal(e.Data, &change); err != nil || change.ID != machine.AgentPort {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open, a.heard = change.Open, true
	return true
}

// Monitor is QEMU's monitor.
type Monitor interface {
	Execute(ctx context.Context, command string, args, result any) error
}

// QueryPort queries the port's state from QEMU, for a virt-handler that missed the events.
func (a *Agent) QueryPort(ctx context.Context, m Monitor) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var chardevs []struct {
		Label string `json:"label"`
		Open  bool   `json:"frontend-open"`
	}
	if err := m.Execute(ctx, "query-chardev", nil, &chardevs); err != nil {
		return fmt.Errorf("asking for the guest agent's port: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range chardevs {
		// An event is no older than this answer.
		if c.Label == machine.AgentChardev && !a.heard {
			a.open = c.Open
		}
	}
	return nil
}

// SyncPolling starts polling the agent when the port opens, and stops it when the port closes or ctx ends. It returns
// when to call it again, 0 for after the next event. interfaces is the number of the guest's.
func (a *Agent) SyncPolling(ctx context.Context, interfaces int) (after time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := decide(observation{
		open: a.open, asking: a.stop != nil, answered: a.answer != nil,
		asked: a.asked, absentSince: a.absentSince, now: a.env.Now(),
	})
	a.absentSince = d.absentSince
	if d.forget {
		a.answer = nil
	}
	switch {
	case d.stop:
		a.stop()
		a.stop, a.connected = nil, nil
	case d.ask:
		asking, stop := context.WithCancel(ctx)
		a.stop, a.connected = stop, asking
		a.env.Go(func() { a.pollAgent(asking, interfaces, d.pause) })
		if a.env.Credentials != nil {
			a.env.Go(func() { a.syncCredentials(asking, d.pause) })
		}
	}
	return d.after
}

// Close stops polling.
func (a *Agent) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop != nil {
		a.stop()
	}
	a.connected = nil // no goroutine starts any more
}

// pollAgent queries until the answer is complete, then at intervals: always the addresses, less often everything.
func (a *Agent) pollAgent(ctx context.Context, interfaces int, pause time.Duration) {
	var last *vmihandler.Agent
	known, sinceAll := false, 0
	for look := 0; ; look++ {
		wait := pollInterval
		if look < len(firstWaits) && !known {
			wait = firstWaits[look]
		}
		if !sleep(ctx, pause+wait) {
			return
		}
		pause = 0
		a.mu.Lock()
		a.asked = a.env.Now()
		a.mu.Unlock()
		sinceAll++
		if last == nil || !known || sinceAll == pollsForAll {
			last, sinceAll = nil, 0
		}
		answer, err := a.queryStatus(ctx, last)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			a.env.Log.V(1).Info("the guest agent did not answer", "reason", err.Error())
			continue
		}
		last, known = answer, known || complete(answer, interfaces)
		if a.storeAnswer(ctx, answer) {
			a.env.Wake()
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// storeAnswer stores an answer unless the agent has gone, and reports whether the answer has changed.
func (a *Agent) storeAnswer(ctx context.Context, answer *vmihandler.Agent) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil || reflect.DeepEqual(a.answer, answer) {
		return false
	}
	a.answer = answer
	return true
}

// Talk runs a conversation on its own connection: QEMU serves one at a time, and virt-launcher's probes need it, too.
func (a *Agent) Talk(ctx context.Context, talk func(context.Context, *agent.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case a.env.Places <- struct{}{}:
		defer func() { <-a.env.Places }()
	case <-ctx.Done():
		return apierrors.NewTooManyRequests("virt-handler is talking to as many guest agents as it may at a time; try again", 1)
	}
	conn, err := a.env.Dial(ctx)
	if err != nil {
		return fmt.Errorf("connecting to the guest agent: %w", err)
	}
	client := agent.New(conn)
	defer func() { _ = client.Close() }() // all answers have arrived or are given up
	return talk(ctx, client)
}
