package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// A monitor with out-of-band commands reads ahead: QEMU queues up to eight ordinary commands, and reads nothing more while
// the queue is full. So the Client sends one ordinary command at a time, the next after its answer, even if nobody waits
// for that any more: commands without an answer can't keep one from QEMU that would help it.

var errFileInTurn = errors.New("this monitor takes no files: QEMU reads ahead")

// executeInTurn sends the commands one after the other.
func (c *Client) executeInTurn(ctx context.Context, rights []byte, commands []Command) error {
	if rights != nil {
		return fmt.Errorf("QMP %s: %w", commands[0].Name, errFileInTurn)
	}
	var first error
	for _, command := range commands {
		err := c.exchange(ctx, c.turn, request{Execute: command.Name, Arguments: command.Args}, command)
		if first == nil {
			first = err
		}
	}
	return first
}

// exchange sends one command and awaits its answer. turn is nil for a command that needs none.
func (c *Client) exchange(ctx context.Context, turn chan struct{}, r request, command Command) error {
	reply := make(chan answer, 1)
	id, err := c.register(reply)
	if err != nil {
		return fmt.Errorf("QMP %s: %w", command.Name, err)
	}
	defer c.forget(id)
	r.ID = id
	line, err := appendLine(nil, r)
	if err != nil {
		return fmt.Errorf("QMP %s: %w", command.Name, err)
	}
	if turn != nil {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("QMP %s: waiting for the answer to an earlier command: %w", command.Name, ctx.Err())
		case <-c.done:
			return fmt.Errorf("QMP %s: %w", command.Name, c.Err())
		}
		c.mu.Lock()
		c.turnOf = id
		c.mu.Unlock()
	}
	if err := c.send(ctx, line, nil); err != nil {
		// If a part of it was sent, the connection has ended.
		c.mu.Lock()
		c.endTurn(id)
		c.mu.Unlock()
		return fmt.Errorf("QMP %s: %w", command.Name, err)
	}
	return c.await(ctx, command, reply)
}

// endTurn lets the next ordinary command be sent, if the turn is id's. The caller holds c.mu.
func (c *Client) endTurn(id uint64) {
	if c.turnOf == id && id != 0 {
		c.turnOf = 0
		<-c.turn
	}
}

func appendLine(lines []byte, r request) ([]byte, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding the command: %w", err)
	}
	return append(append(lines, line...), '\n'), nil
}
