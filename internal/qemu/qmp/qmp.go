// Package qmp is a client of QEMU's monitor protocol (QMP) over a stream.
//
// It owns the handshake, the matching of answers to commands and the order of events. It must not know what a command
// means, and must import only the standard library and package wire: every VM pays for the code that virt-launcher links.
package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"drydock.dev/drydock/internal/qemu/wire"
)

// Error is QEMU's refusal of a command.
type Error struct {
	Command string
	Class   string // QEMU's: GenericError, CommandNotFound, DeviceNotFound, …
	Desc    string
}

func (e *Error) Error() string { return fmt.Sprintf("QMP %s: %s", e.Command, e.Desc) }

// Event is one of QEMU's events.
type Event struct {
	Name string          // QEMU's: SHUTDOWN, STOP, DEVICE_DELETED, …
	Data json.RawMessage // a JSON object, or empty
	Time time.Time       // QEMU's timestamp, zero for none
}

// ErrClosed is the cause of all errors after Close.
var ErrClosed = errors.New("the QMP connection was closed")

// These end the connection to a QEMU that misbehaves.
var (
	errDeaf  = errors.New("QEMU does not read its commands")
	errFlood = errors.New("QEMU reports more events than can be processed")
)

// limits bound one message. The longest real ones have some 250 KiB: the schema of QEMU's commands, and the block nodes of
// a guest with a hundred disks.
var limits = wire.Limits{Bytes: 4 << 20, Values: 64 << 10, Depth: 64}

// Client is one connection to a monitor. It is safe for concurrent use; QEMU executes one command at a time.
//
// A Client owns two goroutines, which end with the connection. One reads; the other calls the event function, which may
// therefore be slow or execute commands.
type Client struct {
	conn io.ReadWriteCloser

	mu      sync.Mutex
	nextID  uint64
	waiting map[uint64]chan answer
	err     error

	write  sync.Mutex
	events *queue
	done   chan struct{}

	// turn is nil without out-of-band commands. Else it is full from the sending of an ordinary command to its answer, and
	// turnOf is that command's ID (guarded by mu).
	turn   chan struct{}
	turnOf uint64
}

type answer struct {
	result json.RawMessage
	err    *wireError
}

type wireError struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

type message struct {
	ID     uint64          `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *wireError      `json:"error"`

	Event     string          `json:"event"`
	Data      json.RawMessage `json:"data"`
	Timestamp struct {
		Seconds      int64 `json:"seconds"`
		Microseconds int64 `json:"microseconds"`
	} `json:"timestamp"`
}

type request struct {
	Execute   string `json:"execute,omitempty"`
	OutOfBand string `json:"exec-oob,omitempty"`
	Arguments any    `json:"arguments,omitempty"`
	ID        uint64 `json:"id"`
}

// Dial connects to the monitor at a unix socket. For events see New.
func Dial(ctx context.Context, path string, events func(Event)) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connecting to QEMU's monitor: %w", err)
	}
	return New(ctx, conn, events)
}

// New performs the handshake on conn, which the Client owns and closes. One of its goroutines calls events with every event
// in order; events may be nil.
func New(ctx context.Context, conn io.ReadWriteCloser, events func(Event)) (*Client, error) {
	return connect(ctx, conn, events, false)
}

// NewOutOfBand is New for a monitor on which ExecuteOutOfBand works, if QEMU offers that. Do not pass files through it:
// QEMU reads ahead, and a file replaces the one that came before it.
func NewOutOfBand(ctx context.Context, conn io.ReadWriteCloser, events func(Event)) (*Client, error) {
	return connect(ctx, conn, events, true)
}

func connect(ctx context.Context, conn io.ReadWriteCloser, events func(Event), outOfBand bool) (*Client, error) {
	c := &Client{
		conn:    conn,
		waiting: make(map[uint64]chan answer),
		events:  newQueue(),
		done:    make(chan struct{}),
	}
	greeted := make(chan greeting, 1)
	go c.read(greeted)
	go c.events.deliver(events)
	var hello greeting
	select {
	case hello = <-greeted:
		if hello.err != nil {
			c.fail(hello.err)
			return nil, hello.err
		}
	case <-ctx.Done():
		c.fail(ctx.Err())
		return nil, fmt.Errorf("waiting for QEMU's greeting: %w", ctx.Err())
	}
	var enable any
	if outOfBand = outOfBand && slices.Contains(hello.capabilities, capability); outOfBand {
		enable = map[string]any{"enable": []string{capability}}
	}
	if err := c.Execute(ctx, "qmp_capabilities", enable, nil); err != nil {
		c.fail(err)
		return nil, err
	}
	if outOfBand {
		c.turn = make(chan struct{}, 1)
	}
	return c, nil
}

// capability is that of a monitor with out-of-band commands.
const capability = "oob"

type greeting struct {
	capabilities []string
	err          error
}

// Command is one of the commands of ExecuteAll.
type Command struct {
	Name         string
	Args, Result any
}

// Execute runs one command. args and result may be nil. A refusal by QEMU is an *Error. If ctx ends first, QEMU may
// still execute the command.
func (c *Client) Execute(ctx context.Context, name string, args, result any) error {
	return c.execute(ctx, nil, Command{name, args, result})
}

// OutOfBand reports whether ExecuteOutOfBand works.
func (c *Client) OutOfBand() bool { return c.turn != nil }

// ExecuteOutOfBand executes one of the few commands that QEMU executes at once, also while it waits for memory of its guest
// and answers no other command. On other monitors than OutOfBand's, QEMU refuses it.
func (c *Client) ExecuteOutOfBand(ctx context.Context, name string, args, result any) error {
	command := Command{name, args, result}
	return c.exchange(ctx, nil, request{OutOfBand: name, Arguments: args}, command)
}

// ExecuteAll sends queries together. QEMU executes all, in order; the first refusal is the error.
func (c *Client) ExecuteAll(ctx context.Context, commands ...Command) error {
	return c.execute(ctx, nil, commands...)
}

// The rights go with the first command.
func (c *Client) execute(ctx context.Context, rights []byte, commands ...Command) error {
	if c.turn != nil {
		return c.executeInTurn(ctx, rights, commands)
	}
	var lines []byte
	replies := make([]chan answer, len(commands))
	for i, command := range commands {
		replies[i] = make(chan answer, 1)
		id, err := c.register(replies[i])
		if err != nil {
			return fmt.Errorf("QMP %s: %w", command.Name, err)
		}
		defer c.forget(id)
		if lines, err = appendLine(lines, request{Execute: command.Name, Arguments: command.Args, ID: id}); err != nil {
			return fmt.Errorf("QMP %s: %w", command.Name, err)
		}
	}
	if err := c.send(ctx, lines, rights); err != nil {
		return fmt.Errorf("QMP %s: %w", commands[0].Name, err)
	}
	var first error
	for i, command := range commands {
		if err := c.await(ctx, command, replies[i]); first == nil {
			first = err
		}
	}
	return first
}

func (c *Client) await(ctx context.Context, command Command, reply <-chan answer) error {
	select {
	case a := <-reply:
		return decodeAnswer(command.Name, a, command.Result)
	case <-ctx.Done():
		return fmt.Errorf("QMP %s: waiting for the answer: %w", command.Name, ctx.Err())
	case <-c.done:
	}
	// The answer may have come just before the end.
	select {
	case a := <-reply:
		return decodeAnswer(command.Name, a, command.Result)
	default:
		return fmt.Errorf("QMP %s: %w", command.Name, c.Err())
	}
}

func decodeAnswer(name string, a answer, result any) error {
	if a.err != nil {
		return &Error{Command: name, Class: a.err.Class, Desc: a.err.Desc}
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(a.result, result); err != nil {
		return fmt.Errorf("QMP %s: reading the answer: %w", name, err)
	}
	return nil
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended: io.EOF at QEMU's end, ErrClosed after Close, nil while it lasts.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close returns after the last event. The event function must not call it.
func (c *Client) Close() error {
	c.fail(ErrClosed)
	<-c.events.done
	return nil
}

func (c *Client) register(reply chan answer) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.nextID++
	c.waiting[c.nextID] = reply
	return c.nextID, nil
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// A partly written command can't be withdrawn, so it ends the connection.
func (c *Client) send(ctx context.Context, lines, rights []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sending the command: %w", err)
	}
	release := c.bound(ctx)
	defer release()
	var err error
	if rights != nil {
		err = c.sendRights(lines, rights)
	} else if _, err = c.conn.Write(lines); err != nil {
		err = fmt.Errorf("sending the command: %w", err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.fail(errDeaf)
		return errors.Join(ctx.Err(), errDeaf)
	}
	return err
}

// bound interrupts a write when ctx ends, if the connection supports deadlines, until release.
func (c *Client) bound(ctx context.Context) (release func()) {
	conn, ok := c.conn.(interface{ SetWriteDeadline(time.Time) error })
	if !ok {
		return func() {}
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = conn.SetWriteDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-ended
			_ = conn.SetWriteDeadline(time.Time{})
		}
	}
}

func (c *Client) read(greeted chan<- greeting) {
	reader := bufio.NewReader(c.conn)
	var hello struct {
		QMP *struct {
			Capabilities []string `json:"capabilities"`
		} `json:"QMP"`
	}
	if err := decode(reader, &hello); err != nil {
		greeted <- greeting{err: fmt.Errorf("reading QEMU's greeting: %w", err)}
		return
	}
	if hello.QMP == nil {
		greeted <- greeting{err: errors.New("reading QEMU's greeting: the peer does not speak QMP")}
		return
	}
	greeted <- greeting{capabilities: hello.QMP.Capabilities}
	for {
		var m message
		if err := decode(reader, &m); err != nil {
			if errors.Is(err, syscall.ECONNRESET) {
				err = io.EOF // QEMU may exit before it has read everything, if only a final newline
			}
			c.fail(fmt.Errorf("QEMU ended the connection: %w", err))
			return
		}
		if m.Event != "" {
			e := Event{Name: m.Event, Data: m.Data}
			// QEMU sends -1 without a clock.
			if m.Timestamp.Seconds > 0 {
				e.Time = time.Unix(m.Timestamp.Seconds, m.Timestamp.Microseconds*1000)
			}
			if !c.events.add(e) {
				c.fail(errFlood)
			}
			continue
		}
		c.mu.Lock()
		reply := c.waiting[m.ID]
		delete(c.waiting, m.ID)
		c.endTurn(m.ID)
		c.mu.Unlock()
		if reply != nil {
			reply <- answer{result: m.Return, err: m.Error}
		}
	}
}

func decode(r *bufio.Reader, into any) error {
	line, err := limits.ReadLine(r)
	if err == nil {
		err = limits.Check(line)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(line, into)
}

// fail ends the connection. The first cause is kept.
func (c *Client) fail(cause error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = cause
	}
	c.mu.Unlock()
	if first {
		_ = c.conn.Close()
		close(c.done)
		c.events.close()
	}
}
