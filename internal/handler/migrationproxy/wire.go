package migrationproxy

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"net"
	"sync"
)

const (
	// batch is how much goes to the network, and comes from it, in one system call. TLS itself writes and
	// reads its records of 16 KiB one by one, and each of them wakes whoever waits for it.
	batch = 64 << 10
	// record is how much of what is said goes into one of them.
	record = 16 << 10
	// recordHeader is the size of what stands before each of TLS's records: a type, a version, and in two
	// bytes the length of what follows.
	recordHeader = 5
)

// peerConn is a connection with another virt-handler. It reads and writes as much at a time as there is.
type peerConn struct {
	*tls.Conn
	wire *wire
}

// newClient is the side that has called, newServer the one that was called. Nothing was said yet.
func newClient(conn net.Conn, config *tls.Config) *peerConn {
	w := newWire(conn)
	return &peerConn{tls.Client(w, config), w}
}

func newServer(conn net.Conn, config *tls.Config) *peerConn {
	w := newWire(conn)
	return &peerConn{tls.Server(w, config), w}
}

// Read waits for one record, and takes what has arrived behind it.
func (c *peerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for err == nil && n < len(p) && c.wire.hasRecord() {
		var more int
		more, err = c.Conn.Read(p[n:])
		n += more
	}
	return n, err
}

// Write returns when all of p was given to the network. Only one caller at a time may write.
func (c *peerConn) Write(p []byte) (int, error) {
	if len(p) <= record {
		return c.Conn.Write(p)
	}
	c.wire.hold()
	n, err := c.Conn.Write(p)
	if released := c.wire.release(); err == nil {
		err = released
	}
	return n, err
}

// wire is what TLS is spoken on. TLS reads for one caller at a time.
type wire struct {
	net.Conn
	in *bufio.Reader
	// left is what is missing of the record that is being read.
	left int

	// mu is for what is written: whoever reads may have TLS write as well.
	mu   sync.Mutex
	held bool
	out  []byte
}

func newWire(conn net.Conn) *wire { return &wire{Conn: conn, in: bufio.NewReaderSize(conn, batch)} }

// Read gives no more than the rest of one record: TLS keeps none of the next one, of which hasRecord would
// not know then.
func (w *wire) Read(p []byte) (int, error) {
	if w.left == 0 {
		header, err := w.in.Peek(recordHeader)
		if err != nil && len(header) == 0 {
			return 0, err
		}
		w.left = recordSize(header)
	}
	n, err := w.in.Read(p[:min(len(p), w.left)])
	w.left -= n
	return n, err
}

// hasRecord reports whether the next record has arrived as a whole.
func (w *wire) hasRecord() bool {
	if w.left > 0 || w.in.Buffered() < recordHeader {
		return false
	}
	header, err := w.in.Peek(recordHeader)
	return err == nil && w.in.Buffered() >= recordSize(header)
}

// recordSize is the size of a record that begins so; of one that ends within its header, that of this.
func recordSize(header []byte) int {
	if len(header) < recordHeader {
		return len(header)
	}
	return recordHeader + int(binary.BigEndian.Uint16(header[recordHeader-2:]))
}

// hold has what is written wait for more, until release.
func (w *wire) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = true
}

func (w *wire) release() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = false
	return w.flush()
}

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.held && len(w.out) == 0 {
		return w.Conn.Write(p)
	}
	w.out = append(w.out, p...)
	if w.held && len(w.out) < batch {
		return len(p), nil
	}
	return len(p), w.flush()
}

// flush writes what waits. What could not be written is lost, as the connection is then. The caller holds
// w.mu.
func (w *wire) flush() error {
	if len(w.out) == 0 {
		return nil
	}
	_, err := w.Conn.Write(w.out)
	w.out = w.out[:0]
	return err
}
