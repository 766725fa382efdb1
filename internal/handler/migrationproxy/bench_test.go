package migrationproxy

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/migrationwire"
)

// piece is the content of one write.
var piece = make([]byte, 256<<10)

// The records have TLS's size.
func BenchmarkSeal(b *testing.B) {
	block, err := aes.NewCipher(make([]byte, 16))
	if err != nil {
		b.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		b.Fatal(err)
	}
	record, out, nonce := make([]byte, 16<<10), make([]byte, 0, 17<<10), make([]byte, gcm.NonceSize())
	b.SetBytes(int64(len(record)))
	for b.Loop() {
		out = gcm.Seal(out[:0], nonce, record, nil)
	}
}

func BenchmarkTLS(b *testing.B) {
	p := meet(b)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	config := p.authority.Handler(b, "node2").PeerServerConfig(migrationwire.Protocol)
	ended := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer conn.Close()
		_, err = io.Copy(io.Discard, tls.Server(conn, config))
		ended <- err
	}()
	plain, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	conn := tls.Client(plain, p.source.PeerClientConfig("node2.virt-handler.kubevirt.svc", migrationwire.Protocol))
	defer func() { _ = conn.Close() }()
	if err := conn.Handshake(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(piece)))
	for b.Loop() {
		if _, err := conn.Write(piece); err != nil {
			b.Fatal(err)
		}
	}
	_ = conn.CloseWrite()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}

func BenchmarkStream(b *testing.B) {
	p := meet(b)
	qemu := p.qemu()
	p.expect(&Facts{}, newEar())
	p.forward(&Forward{Outgoing: p.outgoing(), Channel: migrationwire.Stream, Admit: ours})
	there := p.dialSource()
	here := accept(b, qemu)
	_ = there.SetDeadline(time.Time{})
	_ = here.SetDeadline(time.Time{})
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, here)
		ended <- err
	}()
	b.SetBytes(int64(len(piece)))
	for b.Loop() {
		if _, err := there.Write(piece); err != nil {
			b.Fatal(err)
		}
	}
	_ = there.CloseWrite()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
