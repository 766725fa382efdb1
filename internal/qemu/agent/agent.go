// Package agent is a client of the QEMU guest agent, over QEMU's unix socket for the agent's virtio-serial port.
//
// It owns the protocol: the synchronization that a port without connections needs, deadlines for an absent, hung or
// hostile agent, and the commands. It must not import Kubernetes or API types, nor decide what an answer means for a VMI.
//
// QEMU serves one connection to the socket at a time; a second one waits. So connect, execute, and close.
package agent

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"drydock.dev/drydock/internal/qemu/wire"
)

// limits bound the caller's memory: the guest may be hostile. A real agent's longest answer has some 600 bytes and 25
// values for each network interface: 400 interfaces fit.
var limits = wire.Limits{Bytes: 256 << 10, Values: 16 << 10, Depth: 32}

const (
	// delimiter is in no JSON text. Before a command it makes the agent drop a partly received one; it precedes the answer
	// to guest-sync-delimited, so that the reader can drop earlier answers.
	delimiter = 0xff
)

// Error is the agent's refusal of a command.
type Error struct {
	Command string
	Class   string // CommandNotFound or CommandDisabled if the agent lacks the command; mostly GenericError
	Desc    string
}

func (e *Error) Error() string { return fmt.Sprintf("guest agent: %s: %s", e.Command, e.Desc) }

// Unsupported reports whether err means that the agent lacks the command.
func Unsupported(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Class == "CommandNotFound" || e.Class == "CommandDisabled")
}

// Client is one connection to the agent's port. It is safe for concurrent use, and serializes the commands. After a
// deadline the next command synchronizes again, so that it gets no late answer.
type Client struct {
	conn net.Conn

	mu     sync.Mutex
	reader *bufio.Reader
	synced bool
}

const crowdedPause = 20 * time.Millisecond

// Dial connects to the agent's socket. It succeeds when QEMU listens, also without an agent (see Ping).
func Dial(ctx context.Context, path string) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	for errors.Is(err, syscall.EAGAIN) {
		// QEMU queues one or two connections.
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connecting to the guest agent's port, which others use: %w", ctx.Err())
		case <-time.After(crowdedPause):
		}
		conn, err = d.DialContext(ctx, "unix", path)
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to the guest agent's port: %w", err)
	}
	return New(conn), nil
}

// New returns a client, which owns conn.
func New(conn net.Conn) *Client {
	return &Client{conn: conn, reader: bufio.NewReader(conn)}
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Execute runs a command. args and result may be nil. Without a deadline in ctx it waits without end.
func (c *Client) Execute(ctx context.Context, command string, args, result any) error {
	return c.execute(ctx, command, args, result, c.syncThenSend)
}

// executeAtOnce sends the command with the synchronization, so that a guest that stands still answers once. The command
// must be harmless later, when a silent agent may execute it.
func (c *Client) executeAtOnce(ctx context.Context, command string, result any) error {
	return c.execute(ctx, command, nil, result, c.sync)
}

// execute sends a command, by begin if the stream must be synchronized first.
func (c *Client) execute(ctx context.Context, command string, args, result any, begin func(line []byte) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	release := c.bound(ctx)
	defer release()
	send := begin
	if c.synced {
		send = c.send
	}
	// The stream is out of sync until the answer is read.
	c.synced = false
	line, err := commandLine(command, args)
	if err == nil {
		err = send(line)
	}
	if err != nil {
		return c.explain(ctx, command, err)
	}
	return c.answer(ctx, command, result)
}

func (c *Client) syncThenSend(line []byte) error {
	if err := c.sync(nil); err != nil {
		return fmt.Errorf("guest-sync-delimited: %w", err)
	}
	return c.send(line)
}

func (c *Client) answer(ctx context.Context, command string, result any) error {
	answer, err := c.receive()
	if err != nil {
		return c.explain(ctx, command, err)
	}
	c.synced = true
	if answer.Error != nil {
		return &Error{Command: command, Class: answer.Error.Class, Desc: answer.Error.Desc}
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Return, result); err != nil {
		return fmt.Errorf("guest agent: %s: reading the answer: %w", command, err)
	}
	return nil
}

// bound interrupts reads and writes when ctx ends, until release.
func (c *Client) bound(ctx context.Context) (release func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = c.conn.SetDeadline(time.Unix(1, 0))
	})
	return func() {
		if stop() {
			return
		}
		<-ended
		_ = c.conn.SetDeadline(time.Time{})
	}
}

func (c *Client) explain(ctx context.Context, command string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("guest agent: %s: no answer: %w", command, ctx.Err())
	}
	return fmt.Errorf("guest agent: %s: %w", command, err)
}

type reply struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
}

// sync discards all earlier data on the port. It skips other numbers, since a new agent may first answer an earlier
// caller's commands. next is a command to send along.
func (c *Client) sync(next []byte) error {
	var seed [4]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return fmt.Errorf("choosing a number: %w", err)
	}
	id := int64(binary.BigEndian.Uint32(seed[:]))
	line, err := commandLine("guest-sync-delimited", map[string]any{"id": id})
	if err != nil {
		return err
	}
	// The first delimiter resets the agent, whose error for a truncated command is skipped below.
	if err := c.send(slices.Concat([]byte{delimiter}, line, next)); err != nil {
		return err
	}
	for {
		if err := skipToDelimiter(c.reader); err != nil {
			return err
		}
		answer, err := c.receive()
		if err != nil {
			return err
		}
		var got int64
		if answer.Error == nil && json.Unmarshal(answer.Return, &got) == nil && got == id {
			return nil
		}
	}
}

func (c *Client) send(lines []byte) error {
	if _, err := c.conn.Write(lines); err != nil {
		return fmt.Errorf("sending the command: %w", err)
	}
	return nil
}

func commandLine(command string, args any) ([]byte, error) {
	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, args})
	if err != nil {
		return nil, fmt.Errorf("encoding the command: %w", err)
	}
	return append(line, '\n'), nil
}

func (c *Client) receive() (*reply, error) {
	line, err := limits.ReadLine(c.reader)
	if err == nil {
		err = limits.Check(line)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", eofAsError(err))
	}
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return &r, nil
}

func skipToDelimiter(r *bufio.Reader) error {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return fmt.Errorf("reading the answer: %w", eofAsError(err))
		}
		if b == delimiter {
			return nil
		}
	}
}

func eofAsError(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("QEMU closed the port")
	}
	return err
}
