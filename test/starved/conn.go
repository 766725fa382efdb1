// Package starved has connections as a process knows them that waits long for its CPU: each deadline of a write passes
// before the write begins.
package starved

import (
	"net"
	"os"
	"sync/atomic"
	"time"
)

// Conn is broken by a write that has a deadline, as a TLS connection is when the deadline passes.
type Conn struct {
	net.Conn
	hasDeadline, broken atomic.Bool
}

// SetWriteDeadline notes whether there is one.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.hasDeadline.Store(!t.IsZero())
	return nil
}

// Write writes if there has never been a deadline at a write.
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
