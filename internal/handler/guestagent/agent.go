// Package guestagent has the conversations of virt-handler with the guest agent behind one
// QEMU's port: it asks a new agent what a VMI's status reports, and what users ask.
//
// What it knows belongs to that QEMU and its guest, and the guest may be hostile: each
// conversation has a deadline, and what is kept of an answer a bound. It must not decide what a
// status says (package guestlifecycle), and knows no API server.
//
// Observe gives what is known as values; when to ask is decided in decide.go.
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
	"drydock.dev/drydock/internal/rules/accesscredential"
	"drydock.dev/drydock/internal/rules/guestlifecycle"
	"drydock.dev/drydock/internal/rules/machine"
)

// timeout bounds one conversation with the guest agent, which may wait for
// another one (a probe's) to end first.
const timeout = 10 * time.Second

// maxConversations bounds the conversations with guest agents that go on at a time
// on the node, and with them what hostile agents together can make virt-handler
// hold: some 3 MiB each. Agents that say nothing keep their places for timeout,
// so there are more places than an honest node needs, whose agents answer in
// milliseconds.
const maxConversations = 16

// Places has a place for each conversation that may go on at a time.
type Places chan struct{}

// NewPlaces gives the places of a node.
func NewPlaces() Places { return make(Places, maxConversations) }

// Env is what an Agent needs of its surroundings.
type Env struct {
	// Dial connects to the agent's socket.
	Dial   func(ctx context.Context) (net.Conn, error)
	Places Places
	// Go runs a goroutine that the owner waits for; it ends with its context.
	Go func(func())
	// Wake is called when there is something to look at.
	Wake func()
	// Credentials reads what the agent is to set in the guest; nil when that is nothing.
	Credentials func() (accesscredential.Delivery, error)
	Now         func() time.Time
	Log         logr.Logger
}

// Agent is the guest agent behind one QEMU's port. Its methods may be called from several
// goroutines, Tend and Close from one.
type Agent struct {
	env Env

	mu sync.Mutex
	// open means that something in the guest has opened the port; heard that QEMU has
	// reported it.
	open, heard bool
	// answer is what the agent answered last, which stays a while after it has gone; nil
	// for nothing. It is never changed.
	answer *guestlifecycle.Agent
	// credentials tells whether those were set last; nil while nobody has tried.
	credentials *guestlifecycle.Credentials
	// asked is when the agent was asked last.
	asked time.Time

	// What follows is Tend's own. absentSince is when the port was found closed, zero while
	// there is nothing to forget.
	absentSince time.Time
	// stop ends the goroutine that asks the agent; nil when it is not to be asked.
	stop context.CancelFunc
}

// Facts are what is known of the agent.
type Facts struct {
	// Connected means that the port is open.
	Connected bool
	// Answer is what the agent answered; nil when it has not, or is long gone. It must not
	// be changed.
	Answer *guestlifecycle.Agent
	// Credentials tells whether access credentials were set; nil while nobody has tried.
	Credentials *guestlifecycle.Credentials
}

// New gives the Agent of a QEMU whose monitor is about to be connected. known is what an
// agent answered an earlier virt-handler, which stands until it answers anew.
func New(env Env, known *guestlifecycle.Agent) *Agent { return &Agent{env: env, answer: known} }

// Observe gives what is known now.
func (a *Agent) Observe() Facts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Facts{Connected: a.open, Answer: a.answer, Credentials: a.credentials}
}

// HandleEvent takes note of QEMU's events about the port, and reports whether Tend is to be
// called.
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

// Monitor is QEMU's, as far as it is needed here.
type Monitor interface {
	Execute(ctx context.Context, command string, args, result any) error
}

// Find asks QEMU for what events would have reported, had anyone listened.
func (a *Agent) Find(ctx context.Context, m Monitor) error {
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
		// An event is newer than this answer, or says the same.
		if c.Label == machine.AgentChardev && !a.heard {
			a.open = c.Open
		}
	}
	return nil
}

// Tend starts and ends the goroutine that asks the agent, as the agent appears and
// vanishes, and returns when to call it again; 0 for when something happens. interfaces is
// how many the guest has. ctx ends the goroutine, too.
func (a *Agent) Tend(ctx context.Context, interfaces int) (after time.Duration) {
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
		a.stop = nil
	case d.ask:
		asking, stop := context.WithCancel(ctx)
		a.stop = stop
		a.env.Go(func() { a.learn(asking, interfaces, d.pause) })
		if a.env.Credentials != nil {
			a.env.Go(func() { a.keepCredentials(asking, d.pause) })
		}
	}
	return d.after
}

// Close ends the goroutine that asks the agent.
func (a *Agent) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop != nil {
		a.stop()
	}
}

// learn asks the agent until it has answered all that the status wants to know, and from then on now and then: for its
// addresses each time, for all seldom.
func (a *Agent) learn(ctx context.Context, interfaces int, pause time.Duration) {
	var last *guestlifecycle.Agent
	known, sinceAll := false, 0
	for look := 0; ; look++ {
		wait := rest
		if look < len(looks) && !known {
			wait = looks[look]
		}
		if !sleep(ctx, pause+wait) {
			return
		}
		pause = 0
		a.mu.Lock()
		a.asked = a.env.Now()
		a.mu.Unlock()
		sinceAll++
		if last == nil || !known || sinceAll == looksForAll {
			last, sinceAll = nil, 0
		}
		answer, err := a.ask(ctx, last)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			a.env.Log.V(1).Info("the guest agent did not answer", "reason", err.Error())
			continue
		}
		last, known = answer, known || complete(answer, interfaces)
		if a.keep(ctx, answer) {
			a.env.Wake()
		}
	}
}

// sleep waits, and reports whether ctx lets it.
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

// keep keeps an answer of an agent that has not gone meanwhile, and reports whether it is a new one.
func (a *Agent) keep(ctx context.Context, answer *guestlifecycle.Agent) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil || reflect.DeepEqual(a.answer, answer) {
		return false
	}
	a.answer = answer
	return true
}

// Talk has a conversation with the agent. The connection lasts no longer
// than that: QEMU serves one at a time, and virt-launcher's probes want theirs.
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
	defer func() { _ = client.Close() }() // all answers are in, or given up
	return talk(ctx, client)
}
