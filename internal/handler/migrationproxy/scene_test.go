package migrationproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/certs/certstest"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/handler/podpath"
)

// patience bounds one short wait.
const patience = 4 * time.Minute

var header = migrationwire.Header{MigrationUID: "m", VMIUID: "u", Namespace: "ns", Name: "vm"}

type pair struct {
	t                    testing.TB
	authority            *certstest.Authority
	limits               Limits
	source               *certs.Source
	expectations         *Expectations
	server               *Server
	address              netip.AddrPort
	stop                 func()
	sourceDir, targetDir *podpath.Dir
	log                  *lines
}

// lines has the logged lines.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(_, text string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, text)
	}, funcr.Options{})
}

func (l *lines) with(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(l.all), func(line string) bool { return !strings.Contains(line, text) }))
}

// await waits until a text is logged.
func (l *lines) await(t testing.TB, text string) {
	t.Helper()
	for deadline, tick := time.Now().Add(patience), time.Tick(time.Millisecond); l.with(text) == 0; <-tick {
		if time.Now().After(deadline) {
			l.mu.Lock()
			defer l.mu.Unlock()
			t.Fatalf("logged is %v, want %q", l.all, text)
		}
	}
}

// generous is for tests that are not about limits, so that they pass on a busy machine.
var generous = Limits{Greeting: patience, Silence: patience}

func meet(t testing.TB) *pair {
	t.Helper()
	return meetWithin(t, generous)
}

func meetWithin(t testing.TB, limits Limits) *pair {
	t.Helper()
	t.Cleanup(func() { noneLeft(t) })
	p := &pair{t: t, limits: limits, authority: certstest.NewAuthority(t), expectations: &Expectations{}, sourceDir: folder(t), targetDir: folder(t), log: &lines{}}
	p.source = p.authority.Handler(t, "node1")
	p.serve("127.0.0.1:0")
	return p
}

// A socket's path must be short.
func folder(t testing.TB) *podpath.Dir {
	t.Helper()
	path, err := os.MkdirTemp("", "pod")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := podpath.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dir.Close()
		_ = os.RemoveAll(path)
	})
	return dir
}

// serve starts the target's virt-handler.
func (p *pair) serve(address string) {
	p.t.Helper()
	listener, err := net.Listen("tcp", address)
	// Another test's connection may have the port of a stopped server, as long as it lasts.
	for deadline, tick := time.Now().Add(patience), time.Tick(10*time.Millisecond); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(deadline); <-tick {
		listener, err = net.Listen("tcp", address)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.address = listener.Addr().(*net.TCPAddr).AddrPort()
	p.server = NewServer(p.expectations, p.authority.Handler(p.t, "node2").PeerServerConfig(migrationwire.Protocol), nil, p.log.logger())
	p.server.Limits = p.limits
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.server.Serve(ctx, listener)
	}()
	p.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	p.t.Cleanup(p.stop)
}

func (p *pair) outgoing() *Outgoing { return p.outgoingOf(p.source) }

func (p *pair) outgoingOf(source *certs.Source) *Outgoing {
	return &Outgoing{Address: p.address, Node: "node2", Header: header, TLS: source.PeerClientConfig, Log: p.log.logger(), Limits: p.limits}
}

func (p *pair) awaitAdmission(channel migrationwire.Channel) {
	p.t.Helper()
	for deadline, tick := time.Now().Add(patience), time.Tick(10*time.Millisecond); ; <-tick {
		conn, err := p.outgoing().Dial(p.t.Context(), channel)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the target refuses the source for good: %v", err)
		}
	}
}

func (p *pair) qemu() *net.UnixListener {
	p.t.Helper()
	listener, err := p.targetDir.Listen(p.t.Context(), layout.MigrationSocket, os.Geteuid())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = listener.Close() })
	return listener.UnixListener
}

// ear keeps the received messages.
type ear struct {
	mu        sync.Mutex
	kinds     []migrationwire.Kind
	connected []bool
	changed   chan struct{}
}

func newEar() *ear { return &ear{changed: make(chan struct{}, 1)} }

func (e *ear) note(change func()) {
	e.mu.Lock()
	change()
	e.mu.Unlock()
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

func (e *ear) heard(k migrationwire.Kind) { e.note(func() { e.kinds = append(e.kinds, k) }) }
func (e *ear) link(up bool)               { e.note(func() { e.connected = append(e.connected, up) }) }

func (e *ear) await(t testing.TB, what string, reached func(e *ear) bool) {
	t.Helper()
	for timeout := time.After(patience); ; {
		e.mu.Lock()
		done, seen, links := reached(e), slices.Clone(e.kinds), slices.Clone(e.connected)
		e.mu.Unlock()
		if done {
			return
		}
		select {
		case <-e.changed:
		case <-timeout:
			t.Fatalf("waited for %s in vain: heard is %v, connections were %v", what, seen, links)
		}
	}
}

func (e *ear) awaitKinds(t testing.TB, want ...migrationwire.Kind) {
	t.Helper()
	e.await(t, "facts", func(e *ear) bool { return slices.Equal(e.kinds, want) })
}

func (p *pair) expect(facts *Facts, e *ear) (forget func()) {
	return p.expectations.Expect(p.expected(facts, e))
}

func (p *pair) expected(facts *Facts, e *ear) Expected {
	return Expected{
		MigrationUID: header.MigrationUID, VMIUID: header.VMIUID, Namespace: header.Namespace, Name: header.Name, SourceNode: "node1",
		Target: Target{
			Dial:  func(ctx context.Context) (*net.UnixConn, error) { return p.targetDir.Dial(ctx, layout.MigrationSocket) },
			Facts: facts, Heard: e.heard, Connected: e.link,
		},
	}
}

func (p *pair) forward(f *Forward) (stop func()) {
	p.t.Helper()
	listener, err := p.sourceDir.Listen(p.t.Context(), layout.MigrationSocket, os.Geteuid())
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx, listener) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			p.t.Errorf("taking connections of QEMU: %v", err)
		}
	})
	p.t.Cleanup(stop)
	return stop
}

func ours(*net.UnixConn) error { return nil }

// dialSource connects as the source's QEMU.
func (p *pair) dialSource() *net.UnixConn {
	p.t.Helper()
	conn, err := p.sourceDir.Dial(p.t.Context(), layout.MigrationSocket)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

func accept(t testing.TB, listener *net.UnixListener) *net.UnixConn {
	t.Helper()
	_ = listener.SetDeadline(time.Now().Add(patience))
	conn, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// ends waits until nothing more comes.
func ends(t testing.TB, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if n, err := io.Copy(io.Discard, conn); err != nil && os.IsTimeout(err) {
		t.Errorf("the connection has not ended after %d bytes: %v", n, err)
	}
}

// raw is a TLS connection of node1's to the server, on which nothing was sent. A busy machine may miss the limit of the
// server's greetings.
func (p *pair) raw() *tls.Conn {
	p.t.Helper()
	config := p.authority.Handler(p.t, "node1").PeerClientConfig("node2.virt-handler.kubevirt.svc", migrationwire.Protocol)
	for deadline := time.Now().Add(patience); ; {
		began := time.Now()
		conn, err := tls.Dial("tcp", p.address.String(), config)
		if err == nil {
			p.t.Cleanup(func() { _ = conn.Close() })
			_ = conn.SetDeadline(time.Now().Add(patience))
			return conn
		}
		if time.Since(began) < p.limits.greeting() || time.Now().After(deadline) {
			p.t.Fatal(err)
		}
	}
}

// Goroutines of the package must not outlive a test.
func noneLeft(t testing.TB) {
	t.Helper()
	var text string
	for deadline, tick := time.Now().Add(patience), time.Tick(10*time.Millisecond); time.Now().Before(deadline); <-tick {
		var b strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&b, 2); err != nil {
			t.Fatal(err)
		}
		text = ""
		for stack := range strings.SplitSeq(b.String(), "\n\n") {
			if strings.Contains(stack, "internal/handler/migrationproxy.") && !strings.Contains(stack, "testing.tRunner") && !strings.Contains(stack, "testing.(*B)") {
				text += stack + "\n\n"
			}
		}
		if text == "" {
			return
		}
	}
	t.Errorf("goroutines are left:\n%s", text)
}

func dirOf(dir *podpath.Dir) (path string) {
	_ = dir.Named(func(p string) error {
		var err error
		path, err = os.Readlink(p)
		return err
	})
	return path
}

func socket(dir *podpath.Dir) string { return filepath.Join(dirOf(dir), layout.MigrationSocket) }

// anyone is a client without a certificate.
func anyone(_, protocol string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}
}

func freePort(t testing.TB) uint16 {
	t.Helper()
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).AddrPort().Port()
}
