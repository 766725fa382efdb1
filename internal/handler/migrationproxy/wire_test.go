package migrationproxy

import (
	"bytes"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/migrationwire"
)

// splitConn splits writes into pieces of up to most bytes, and counts the writes; 0 for one piece.
type splitConn struct {
	net.Conn
	most   int
	writes *atomic.Int64
}

func (c splitConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	for sent := 0; sent < len(p); {
		n := len(p) - sent
		if c.most > 0 {
			n = min(n, 1+rand.IntN(c.most))
		}
		if _, err := c.Conn.Write(p[sent : sent+n]); err != nil {
			return sent, err
		}
		sent += n
	}
	return len(p), nil
}

func (p *pair) connected(t *testing.T, most int) (source, target *peerConn, writes *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	called, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	taken, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	writes = &atomic.Int64{}
	source = newClient(splitConn{called, most, writes}, p.source.PeerClientConfig("node2.virt-handler.kubevirt.svc", migrationwire.Protocol))
	target = newServer(taken, p.authority.Handler(t, "node2").PeerServerConfig(migrationwire.Protocol))
	proved := make(chan error, 1)
	go func() { proved <- target.Handshake() }()
	if err := source.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-proved; err != nil {
		t.Fatal(err)
	}
	for _, c := range []*peerConn{source, target} {
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	return source, target, writes
}

func noise(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

func TestWhatComesInPiecesIsReadAsItWasWritten(t *testing.T) {
	p := meet(t)
	for _, most := range []int{3, 5000, 40000} {
		source, target, _ := p.connected(t, most)
		said := noise(300 << 10)
		go func() {
			for rest := said; len(rest) > 0; {
				n := min(len(rest), 1+rand.IntN(2*batch))
				_, _ = source.Write(rest[:n])
				rest = rest[n:]
			}
			_ = source.CloseWrite()
		}()
		heard, err := io.ReadAll(target)
		if err != nil || !bytes.Equal(heard, said) {
			t.Errorf("in pieces of up to %d bytes: %d of %d bytes, the same: %t; %v", most, len(heard), len(said), bytes.Equal(heard, said), err)
		}
	}
}

// Received data must not be kept until more comes.
func TestARecordThatHasNotArrivedIsNotWaitedFor(t *testing.T) {
	p := meet(t)
	source, target, _ := p.connected(t, 0)
	for _, size := range []int{1, record, record + 1, 5 * record} {
		said := noise(size)
		if _, err := source.Write(said); err != nil {
			t.Fatal(err)
		}
		heard := make([]byte, 0, 2*size)
		for len(heard) < size { // source writes no more until all has been read
			n, err := target.Read(heard[len(heard):cap(heard)])
			if err != nil {
				t.Fatalf("after %d of %d bytes: %v", len(heard), size, err)
			}
			heard = heard[:len(heard)+n]
		}
		if !bytes.Equal(heard, said) {
			t.Errorf("%d bytes are others", size)
		}
	}
}

func TestManyRecordsGoAtATime(t *testing.T) {
	p := meet(t)
	source, target, writes := p.connected(t, 0)
	big := noise(16 * record)
	for range 2 { // TLS begins with smaller records
		before := writes.Load()
		if _, err := source.Write(big); err != nil {
			t.Fatal(err)
		}
		if n := writes.Load() - before; n > 16*record/batch+1 {
			t.Errorf("%d bytes went in %d writes", len(big), n)
		}
		if _, err := io.ReadFull(target.Conn, make([]byte, len(big))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := source.Write(big[:2*record]); err != nil {
		t.Fatal(err)
	}
	if _, err := target.wire.in.Peek(2 * record); err != nil { // then both records are there except for some bytes
		t.Fatal(err)
	}
	if n, err := target.Read(make([]byte, len(big))); err != nil || n < record {
		t.Errorf("%d bytes were read at a time: %v", n, err)
	}
}

// TestAWireThatEndsWithinARecord must report it to TLS.
func TestAWireThatEndsWithinARecord(t *testing.T) {
	for _, sent := range [][]byte{{0x17}, {0x17, 3, 3, 0}, {0x17, 3, 3, 0, 9, 1, 2}} {
		here, there := net.Pipe()
		go func() {
			_, _ = there.Write(sent)
			_ = there.Close()
		}()
		c := newClient(here, &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "x"})
		got, err := io.ReadAll(c.wire)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%v of %v was read: %v", got, sent, err)
		}
		_ = here.Close()
	}
}
