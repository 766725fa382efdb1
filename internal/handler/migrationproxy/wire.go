package migrationproxy

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"net"
	"sync"
)

const (
	// batch is the size of one system call. TLS alone writes and reads records of 16 KiB, each of which wakes the peer.
	batch  = 64 << 10
	record = 16 << 10
	// A TLS record's header ends with the length of the rest in two bytes.
	recordHeader = 5
)

// peerConn reads and writes all available data at a time.
type peerConn struct {
	*tls.Conn
	wire *wire
}

func newClient(conn net.Conn, config *tls.Config) *peerConn {
	w := newWire(conn)
	return &peerConn{tls.Client(w, config), w}
}

func newServer(conn net.Conn, config *tls.Config) *peerConn {
	w := newWire(conn)
	return &peerConn{tls.Server(w, config), w}
}

// Read waits for one record, and then takes all complete records that have arrived.
func (c *peerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for err == nil && n < len(p) && c.wire.hasRecord() {
		var more int
		more, err = c.Conn.Read(p[n:])
		n += more
	}
	return n, err
}

// Only one caller at a time may write.
func (c *peerConn) Write(p []byte) (int, error) {
	if len(p) <= record {
		return c.Conn.Write(p)
	}
	c.wire.cork()
	n, err := c.Conn.Write(p)
	if released := c.wire.uncork(); err == nil {
		err = released
	}
	return n, err
}

// wire is the transport below TLS, which reads for one caller at a time.
type wire struct {
	net.Conn
	in   *bufio.Reader
	left int // the unread bytes of the current record

	// mu guards the output: a reader may make TLS write as well.
	mu     sync.Mutex
	corked bool
	out    []byte
}

func newWire(conn net.Conn) *wire { return &wire{Conn: conn, in: bufio.NewReaderSize(conn, batch)} }

// Read returns at most the rest of one record: TLS would buffer a part of the next one, unseen by hasRecord.
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

func (w *wire) hasRecord() bool {
	if w.left > 0 || w.in.Buffered() < recordHeader {
		return false
	}
	header, err := w.in.Peek(recordHeader)
	return err == nil && w.in.Buffered() >= recordSize(header)
}

// recordSize accepts a header that is cut off.
func recordSize(header []byte) int {
	if len(header) < recordHeader {
		return len(header)
	}
	return recordHeader + int(binary.BigEndian.Uint16(header[recordHeader-2:]))
}

func (w *wire) cork() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.corked = true
}

func (w *wire) uncork() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.corked = false
	return w.flush()
}

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.corked && len(w.out) == 0 {
		return w.Conn.Write(p)
	}
	w.out = append(w.out, p...)
	if w.corked && len(w.out) < batch {
		return len(p), nil
	}
	return len(p), w.flush()
}

// The caller holds w.mu. Data that can't be written is lost, and so is the connection.
func (w *wire) flush() error {
	if len(w.out) == 0 {
		return nil
	}
	_, err := w.Conn.Write(w.out)
	w.out = w.out[:0]
	return err
}
