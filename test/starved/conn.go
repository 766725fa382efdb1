// Package starved simulates connections of a process that waits long for CPU time: each write deadline passes
// before the write begins. Only tests may import it.
package starved

import (
	"net"
	"os"
	"sync/atomic"
	"time"
)

// Conn is broken by a write with a deadline, like a TLS connection whose deadline has passed.
type Conn struct {
	net.Conn
	hasDeadline, broken atomic.Bool
}

// SetWriteDeadline records whether there is a deadline.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.hasDeadline.Store(!t.IsZero())
	return nil
}

// Write fails once a write had a deadline.
func (c *Conn) Write(data []byte) (int, error) {
	if c.hasDeadline.Load() {
		c.broken.Store(true)
	}
	if c.broken.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(data)
}

// Listener accepts such connections.
type Listener struct{ net.Listener }

// Accept waits for the next connection.
func (l Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: conn}, nil
}
