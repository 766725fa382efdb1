// Package launcherclient is the client of a virt-launcher's socket (internal/contracts/launch).
//
// It owns the connection: Hello, one reply for each request, and the event of QEMU's exit. It decides nothing,
// and must trust nothing that could harm the node: virt-launcher's process is as trustworthy as its guest.
package launcherclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/wire"
)

// maxMessage limits one message of virt-launcher, in bytes. The longest is the reply to Prepare: a few hundred bytes
// for each of a few dozen volumes.
const maxMessage = 1 << 20

// limits limit the decoded message: a few dozen values for each volume.
var limits = wire.Limits{Bytes: maxMessage, Values: 16 << 10, Depth: 16}

// maxText limits a text of virt-launcher, in bytes: a long one would make the VMI's status too large to be written.
const maxText = 1024

func truncate(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "")
}

// ErrClosed means that the connection ended before the reply.
var ErrClosed = errors.New("the connection to virt-launcher has ended")

// Client is a connection to one virt-launcher. It is safe for concurrent use.
type Client struct {
	conn  net.Conn
	hello launch.State

	done chan struct{}
	wg   sync.WaitGroup

	writing sync.Mutex // one request at a time on the wire

	mu       sync.Mutex
	last     uint64
	pending  map[uint64]chan launch.Reply
	exit     *launch.Exit
	exitedAt time.Time
	err      error
	frozen   paced[bool]
	arrival  paced[launch.Arrival]
	changed  chan struct{}
}

// paced is a part of State that a message has reported. State follows it at most once in a pause.
type paced[T comparable] struct {
	reported T
	at       time.Time   // of State's last change
	later    *time.Timer // for the next one
}

// freezePause is the shortest time between two changes of State's Frozen. They are written into the VMI's status, and a
// guest that has taken over its pod may report any number.
const freezePause = 10 * time.Second

// arrivalPause is that of State's Arrival, which makes virt-handler act.
const arrivalPause = time.Second

// New reads the Hello and starts to read messages. The Client owns conn; when New fails, conn is closed.
func New(ctx context.Context, conn net.Conn) (*Client, error) {
	c := &Client{conn: conn, done: make(chan struct{}), changed: make(chan struct{}, 1), pending: map[uint64]chan launch.Reply{}}
	in := bufio.NewScanner(conn)
	in.Buffer(make([]byte, 0, 4096), maxMessage)
	if err := c.greet(ctx, in); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c.wg.Go(func() {
		defer close(c.done)
		for {
			message, err := readMessage(in)
			if err != nil {
				c.mu.Lock()
				c.err = err
				c.mu.Unlock()
				return
			}
			c.handleMessage(message)
		}
	})
	return c, nil
}

func (c *Client) greet(ctx context.Context, in *bufio.Scanner) error {
	interrupt := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(0, 0)) })
	defer interrupt()
	message, err := readMessage(in)
	if ctx.Err() != nil {
		return fmt.Errorf("waiting for virt-launcher's hello: %w", ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("waiting for virt-launcher's hello: %w", err)
	}
	if message.Hello == nil {
		return errors.New("virt-launcher's first message is no hello")
	}
	c.hello = message.Hello.State
	c.frozen.reported, c.arrival.reported = c.hello.Frozen, c.hello.Arrival
	c.setExit(c.hello.Exit, c.hello.ExitedAt)
	return nil
}

// State returns the state that virt-launcher reported last, or QEMU's exit after that.
func (c *Client) State() launch.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exit != nil {
		return launch.State{Phase: launch.PhaseExited, Exit: c.exit, ExitedAt: c.exitedAt}
	}
	return c.hello
}

// Changed receives when State has changed other than by QEMU's exit.
func (c *Client) Changed() <-chan struct{} { return c.changed }

// report records a reported value of a part of State, and updates State after the pause. The caller holds c.mu.
func report[T comparable](c *Client, p *paced[T], of func(*launch.State) *T, value T, pause time.Duration) {
	p.reported = value
	if value == *of(&c.hello) || p.later != nil {
		return
	}
	p.later = time.AfterFunc(time.Until(p.at.Add(pause)), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		p.later = nil
		if p.reported == *of(&c.hello) {
			return
		}
		*of(&c.hello), p.at = p.reported, time.Now()
		select {
		case c.changed <- struct{}{}:
		default: // a message is pending
		}
	})
}

func frozenOf(s *launch.State) *bool { return &s.Frozen }

func arrivalOf(s *launch.State) *launch.Arrival { return &s.Arrival }

// Exit returns how QEMU exited, nil before.
func (c *Client) Exit() *launch.Exit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exit
}

// Done is closed when the connection has ended. Exit is set before, if virt-launcher reported it.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close ends the connection and waits for its reader.
func (c *Client) Close() {
	_ = c.conn.Close() // requests are answered or given up
	c.wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, timer := range []*time.Timer{c.frozen.later, c.arrival.later} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// Prepare makes virt-launcher create and inspect images.
func (c *Client) Prepare(ctx context.Context, images []launch.Image) (map[string]launch.PreparedImage, error) {
	reply, err := c.call(ctx, launch.Request{Prepare: &launch.Prepare{Images: images}})
	if err != nil {
		return nil, fmt.Errorf("preparing disk images: %w", err)
	}
	prepared := make(map[string]launch.PreparedImage, len(reply.Images))
	for _, image := range reply.Images {
		prepared[image.Name] = image
	}
	return prepared, nil
}

// Start starts QEMU. A running one is left alone.
func (c *Client) Start(ctx context.Context, start launch.Start) (launch.State, error) {
	reply, err := c.call(ctx, launch.Request{Start: &start})
	if err != nil {
		return launch.State{}, fmt.Errorf("starting QEMU: %w", err)
	}
	if reply.State == nil {
		return launch.State{}, errors.New("starting QEMU: virt-launcher's answer carries no state")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hello = *reply.State
	if c.exit == nil {
		c.setExit(reply.State.Exit, reply.State.ExitedAt)
	}
	return *reply.State, nil
}

// Stop asks virt-launcher to end QEMU. It may return before QEMU's end.
func (c *Client) Stop(ctx context.Context, stop launch.Stop) error {
	if _, err := c.call(ctx, launch.Request{Stop: &stop}); err != nil {
		return fmt.Errorf("stopping QEMU: %w", err)
	}
	return nil
}

// Recover makes QEMU listen for the rest of an incoming post-copy. listens is false if the connection is not broken.
func (c *Client) Recover(ctx context.Context) (listens bool, err error) {
	reply, err := c.call(ctx, launch.Request{Recover: &launch.Recover{}})
	switch {
	case reply.Refused:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("having QEMU wait for the rest of its guest's memory: %w", err)
	}
	return true, nil
}

// Refusal means that the guest can't be held at present.
type Refusal struct{ Message string }

func (r *Refusal) Error() string { return r.Message }

// NotHeld means that the guest can't be held, now or later.
type NotHeld struct{ Message string }

func (n *NotHeld) Error() string { return n.Message }

var errNoQuiesce = error(&NotHeld{"the VM's launcher pod is from a version that can't hold a guest still: restart or migrate the VM, and try again"})

// Quiesce holds the guest still.
func (c *Client) Quiesce(ctx context.Context, q launch.Quiesce) (launch.Hold, error) {
	return c.callHold(ctx, "holding the guest still", launch.Request{Quiesce: &q})
}

// Held returns the current or the last hold.
func (c *Client) Held(ctx context.Context, asked launch.Held) (launch.Hold, error) {
	return c.callHold(ctx, "asking what holds the guest", launch.Request{Held: &asked})
}

// Release ends a hold.
func (c *Client) Release(ctx context.Context, r launch.Release) (launch.Hold, error) {
	return c.callHold(ctx, "letting the guest go on", launch.Request{Release: &r})
}

func (c *Client) callHold(ctx context.Context, what string, request launch.Request) (launch.Hold, error) {
	if !c.State().Quiesces {
		return launch.Hold{}, errNoQuiesce
	}
	reply, err := c.call(ctx, request)
	if err != nil {
		switch {
		case reply.Refused:
			return launch.Hold{}, &Refusal{err.Error()}
		case reply.Error != "":
			return launch.Hold{}, &NotHeld{err.Error()}
		}
		return launch.Hold{}, fmt.Errorf("%s: %w", what, err)
	}
	if reply.Hold == nil {
		return launch.Hold{}, fmt.Errorf("%s: virt-launcher's answer has no hold", what)
	}
	h := *reply.Hold
	for _, text := range []*string{&h.Token, &h.Holder, (*string)(&h.Method)} {
		*text = strings.ToValidUTF8((*text)[:min(len(*text), launch.MaxHolder)], "")
	}
	h.Ended = truncate(h.Ended)
	h.Milliseconds = max(0, min(h.Milliseconds, (24*time.Hour).Milliseconds()))
	return h, nil
}

func (c *Client) call(ctx context.Context, request launch.Request) (launch.Reply, error) {
	answer := make(chan launch.Reply, 1)
	c.mu.Lock()
	c.last++
	request.ID = c.last
	c.pending[request.ID] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.pending, request.ID)
	}()
	if err := c.write(ctx, request); err != nil {
		return launch.Reply{}, err
	}
	select {
	case reply := <-answer:
		return checked(reply)
	case <-ctx.Done():
		return launch.Reply{}, ctx.Err()
	case <-c.done:
	}
	// The reply may have been the last message.
	select {
	case reply := <-answer:
		return checked(reply)
	default:
		return launch.Reply{}, ErrClosed
	}
}

func checked(reply launch.Reply) (launch.Reply, error) {
	if reply.Error != "" {
		return reply, errors.New(truncate(reply.Error))
	}
	return reply, nil
}

func (c *Client) write(ctx context.Context, request launch.Request) error {
	line, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding a request: %w", err)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	// A virt-launcher that does not read must not block the caller.
	deadline := make(chan struct{})
	interrupt := context.AfterFunc(ctx, func() {
		defer close(deadline)
		_ = c.conn.SetWriteDeadline(time.Unix(0, 0))
	})
	defer func() {
		if !interrupt() {
			// A late deadline must not interrupt the next write.
			<-deadline
			_ = c.conn.SetWriteDeadline(time.Time{})
		}
	}()
	if _, err := c.conn.Write(append(line, '\n')); err != nil {
		// Nothing can follow half a line.
		return errors.Join(fmt.Errorf("asking virt-launcher: %w", err), c.conn.Close())
	}
	return nil
}

// Err returns why the connection ended, nil while it lasts.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// The caller holds c.mu, or no other goroutine has c.
func (c *Client) setExit(exit *launch.Exit, at time.Time) {
	if exit != nil {
		exit.Message = truncate(exit.Message)
	}
	c.exit, c.exitedAt = exit, at
}

func (c *Client) handleMessage(message launch.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case message.Event != nil && message.Event.Exited != nil:
		c.setExit(message.Event.Exited, message.Event.ExitedAt)
	case message.Event != nil && message.Event.Frozen != nil:
		report(c, &c.frozen, frozenOf, *message.Event.Frozen, freezePause)
	case message.Event != nil && message.Event.Arrival != nil:
		report(c, &c.arrival, arrivalOf, *message.Event.Arrival, arrivalPause)
	case message.Reply != nil:
		if answer, ok := c.pending[message.Reply.ID]; ok {
			delete(c.pending, message.Reply.ID)
			answer <- *message.Reply
		}
	}
}

func readMessage(in *bufio.Scanner) (launch.Message, error) {
	if !in.Scan() {
		if err := in.Err(); err != nil {
			return launch.Message{}, fmt.Errorf("reading from virt-launcher: %w", err)
		}
		return launch.Message{}, ErrClosed
	}
	var message launch.Message
	if err := limits.Check(in.Bytes()); err != nil {
		return launch.Message{}, fmt.Errorf("reading from virt-launcher: a message is too large: %w", err)
	}
	if err := json.Unmarshal(in.Bytes(), &message); err != nil {
		return launch.Message{}, fmt.Errorf("reading from virt-launcher: %w", err)
	}
	return message, nil
}
