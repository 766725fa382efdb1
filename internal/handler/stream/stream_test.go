package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/test/starved"
)

// soon bounds the wait for an event that must come, also on a busy machine.
const soon = 4 * time.Minute

// A unix socket serves one connection at a time, as QEMU's does.
type guest struct {
	listener net.Listener
	// conns are the connections in order.
	conns chan net.Conn
	dials atomic.Int32
	wrap  func(net.Conn) net.Conn
}

func newGuest(t *testing.T) *guest {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "serial"))
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{listener: listener, conns: make(chan net.Conn, 10)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			g.conns <- conn
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	return g
}

func (g *guest) dial(ctx context.Context) (net.Conn, error) {
	g.dials.Add(1)
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", g.listener.Addr().String())
	if err != nil || g.wrap == nil {
		return conn, err
	}
	return g.wrap(conn), nil
}

func (g *guest) conn(t *testing.T) net.Conn {
	t.Helper()
	select {
	case conn := <-g.conns:
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	case <-time.After(soon):
		t.Fatal("nobody connects to the guest")
		return nil
	}
}

type host struct {
	*httptest.Server
	consoles *Consoles
}

func newHost(t *testing.T, g *guest) *host {
	t.Helper()
	return newHostOf(t, g, func(l net.Listener) net.Listener { return l })
}

func newHostOf(t *testing.T, g *guest, wrap func(net.Listener) net.Listener) *host {
	t.Helper()
	h := &host{consoles: NewConsoles()}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		console, err := h.consoles.Open(r.Context(), "guest", g.dial)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		client, err := Accept(w, r, func(w http.ResponseWriter, code int, err error) { http.Error(w, err.Error(), code) })
		if err == nil {
			console.Serve(r.Context(), client)
		}
	}))
	h.Listener = wrap(h.Listener)
	h.Start()
	t.Cleanup(func() {
		h.Close()
		h.consoles.Close()
	})
	return h
}

// viewer is a client's end.
type viewer struct {
	*websocket.Conn
	seen bytes.Buffer
}

func (h *host) view(t *testing.T) *viewer {
	t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{nodeapi.StreamProtocol}}
	ws, response, err := dialer.Dial("ws"+strings.TrimPrefix(h.URL, "http"), nil)
	if err != nil {
		t.Fatalf("opening the console: %v", err)
	}
	defer response.Body.Close()
	if ws.Subprotocol() != nodeapi.StreamProtocol {
		t.Errorf("the stream's protocol is %q", ws.Subprotocol())
	}
	t.Cleanup(func() { _ = ws.Close() })
	return &viewer{Conn: ws}
}

func (h *host) awaitOutput(t *testing.T, g *guest, total int64) {
	t.Helper()
	console, err := h.consoles.Open(t.Context(), "guest", g.dial)
	if err != nil {
		t.Fatal(err)
	}
	timeout := time.After(soon)
	for {
		n, _, changed := console.output.read(make([]byte, total), 0)
		if int64(n) == total {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("the guest's %d bytes did not arrive", total)
		}
	}
}

func (v *viewer) await(t *testing.T, text string) {
	t.Helper()
	_ = v.SetReadDeadline(time.Now().Add(soon))
	for !strings.Contains(v.seen.String(), text) {
		kind, data, err := v.ReadMessage()
		if err != nil {
			t.Fatalf("waiting for %q, with %q seen: %v", text, v.seen.String(), err)
		}
		if kind != websocket.BinaryMessage {
			t.Fatalf("a frame is of kind %d, want binary", kind)
		}
		v.seen.Write(data)
	}
}

func (v *viewer) say(t *testing.T, text string) {
	t.Helper()
	if err := v.WriteMessage(websocket.BinaryMessage, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func hears(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(soon))
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
		t.Fatalf("the guest hears %q (%v), want %q", got, err, text)
	}
}

func TestTwoViewersShareAConsole(t *testing.T) {
	g := newGuest(t)
	h := newHost(t, g)
	first := h.view(t)
	conn := g.conn(t)
	say(t, conn, "welcome\r\n")
	first.await(t, "welcome")
	second := h.view(t)
	second.await(t, "welcome") // the last screen
	say(t, conn, "login: ")
	first.await(t, "login: ")
	second.await(t, "login: ")
	first.say(t, "ro")
	hears(t, conn, "ro")
	second.say(t, "ot\n")
	hears(t, conn, "ot\n")
	if n := g.dials.Load(); n != 1 {
		t.Errorf("QEMU's console, which takes one connection, was given %d", n)
	}
}

func TestOutputIsKeptWhileNobodyLooks(t *testing.T) {
	g := newGuest(t)
	h := newHost(t, g)
	first := h.view(t)
	conn := g.conn(t)
	say(t, conn, "first\r\n")
	first.await(t, "first")
	_ = first.Close()
	later := "\x1b[32mlater\x1b[0m\r\n\x1b[6n$ "
	say(t, conn, later)
	h.awaitOutput(t, g, int64(len("first\r\n"+later)))
	second := h.view(t)
	second.await(t, "$ ")
	// The color must stay, but not the query for the cursor's position: the viewer's terminal would type its answer
	// into the guest.
	if got := second.seen.String(); got != "first\r\n\x1b[32mlater\x1b[0m\r\n$ " {
		t.Errorf("a late viewer sees %q", got)
	}
	if n := g.dials.Load(); n != 1 {
		t.Errorf("the console was dialed %d times", n)
	}
}

func TestASlowViewerStallsNobody(t *testing.T) {
	g := newGuest(t)
	h := newHost(t, g)
	slow := h.view(t)
	conn := g.conn(t)
	quick := h.view(t)
	// The slow viewer's own buffers, and the kernel's, take a few MiB.
	line := strings.Repeat("x", 1022) + "\r\n"
	for i := range 16 << 10 {
		_ = conn.SetWriteDeadline(time.Now().Add(soon))
		if _, err := io.WriteString(conn, line); err != nil {
			t.Fatalf("the guest stalls after %d KiB: %v", i, err)
		}
		if i%16 == 0 {
			say(t, conn, fmt.Sprintf("mark %d\r\n", i))
			quick.await(t, fmt.Sprintf("mark %d\r\n", i))
			quick.seen.Reset()
		}
	}
	say(t, conn, "end\r\n")
	slow.await(t, "end\r\n")
	if got := slow.seen.String(); !strings.Contains(got, "bytes of output skipped: the console was read too slowly]") {
		t.Errorf("the slow viewer is not told that it missed something; it saw %d bytes", len(got))
	}
}

func TestAPingBreaksNoConnectionOfABusyNode(t *testing.T) {
	g := newGuest(t)
	h := newHostOf(t, g, func(l net.Listener) net.Listener { return starved.Listener{Listener: l} })
	v := h.view(t)
	conn := g.conn(t)
	answered := make(chan string, 1)
	v.SetPongHandler(func(data string) error {
		answered <- data
		return nil
	})
	if err := v.WriteControl(websocket.PingMessage, []byte("ping 1"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	// The keystroke comes after the ping, and the guest's answer after the keystroke.
	v.say(t, "x")
	hears(t, conn, "x")
	say(t, conn, "still here\r\n")
	v.await(t, "still here")
	for data := ""; data == ""; {
		select {
		case data = <-answered:
			if data != "ping 1" {
				t.Errorf("the ping was answered by %q", data)
			}
		default:
			say(t, conn, "and now?\r\n")
			v.await(t, "and now?\r\n")
			v.seen.Reset()
		}
	}
}

func TestAGuestThatDoesNotListenHoldsNobody(t *testing.T) {
	g := newGuest(t)
	writing := make(chan struct{})
	g.wrap = func(conn net.Conn) net.Conn { return &deaf{Conn: conn, writing: writing, closed: make(chan struct{})} }
	h := newHost(t, g)
	stuck := h.view(t)
	conn := g.conn(t)
	stuck.say(t, "one keystroke, and ")
	select {
	case <-writing:
	case <-time.After(soon):
		t.Fatal("no keystroke goes to the guest")
	}
	stuck.say(t, "the next one, which nobody can take")
	other := h.view(t)
	say(t, conn, "still here\r\n")
	other.await(t, "still here")
	stuck.await(t, "still here")
}

// The guest reads nothing, and its buffers are full.
type deaf struct {
	net.Conn
	// writing is closed by the first Write, and closed by Close.
	writing, closed chan struct{}
	once            sync.Once
}

func (d *deaf) Write([]byte) (int, error) {
	close(d.writing)
	<-d.closed
	return 0, net.ErrClosed
}

func (d *deaf) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Conn.Close()
}

func TestTheEndOfTheGuestEndsItsViewers(t *testing.T) {
	g := newGuest(t)
	h := newHost(t, g)
	v := h.view(t)
	conn := g.conn(t)
	say(t, conn, "reboot: Power down\r\n")
	_ = conn.Close()
	v.await(t, "Power down")
	_, _, err := v.ReadMessage()
	if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the stream ends with %v, want a normal closure", err)
	}
	// The same key now means another start of QEMU, with a history of its own.
	next := h.view(t)
	conn = g.conn(t)
	say(t, conn, "BIOS\r\n")
	next.await(t, "BIOS")
	if got := next.seen.String(); got != "BIOS\r\n" {
		t.Errorf("a viewer of the new guest sees %q", got)
	}
}

func TestClosingEndsAllConsoles(t *testing.T) {
	g := newGuest(t)
	h := newHost(t, g)
	v := h.view(t)
	g.conn(t)
	h.consoles.Close()
	if _, _, err := v.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the stream ends with %v", err)
	}
	if _, err := h.consoles.Open(t.Context(), "guest", g.dial); err == nil {
		t.Error("a console can be opened after Close")
	}
}

func TestAFailedDialIsSaidAndTriedAgain(t *testing.T) {
	c := NewConsoles()
	defer c.Close()
	_, err := c.Open(t.Context(), "guest", func(context.Context) (net.Conn, error) { return nil, errors.New("no such socket") })
	if err == nil || err.Error() != "connecting to the serial console: no such socket" {
		t.Errorf("got %v", err)
	}
	g := newGuest(t)
	if _, err := c.Open(t.Context(), "guest", g.dial); err != nil {
		t.Errorf("the next one is refused too: %v", err)
	}
}

func TestSpliceKeepsDatagrams(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := net.Dial("udp", server.LocalAddr().String())
		if err != nil {
			t.Error(err)
			return
		}
		client, err := Accept(w, r, func(w http.ResponseWriter, code int, err error) { http.Error(w, err.Error(), code) })
		if err == nil {
			Splice(r.Context(), client, conn)
		}
	}))
	defer host.Close()
	ws, response, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(host.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	defer func() { _ = ws.Close() }()
	for _, length := range []int{2, 60000, 1400} {
		if err := ws.WriteMessage(websocket.BinaryMessage, make([]byte, length)); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 65536)
		_ = server.SetReadDeadline(time.Now().Add(soon))
		n, from, err := server.ReadFrom(buffer)
		if err != nil || n != length {
			t.Fatalf("a frame of %d bytes became a datagram of %d (%v)", length, n, err)
		}
		if _, err := server.WriteTo(buffer[:n], from); err != nil {
			t.Fatal(err)
		}
		_ = ws.SetReadDeadline(time.Now().Add(soon))
		_, data, err := ws.ReadMessage()
		if err != nil || len(data) != n {
			t.Fatalf("a datagram of %d bytes became a frame of %d (%v)", n, len(data), err)
		}
	}
}

// CVE-2026-13322: a guest's output on its serial port was kept without a bound.
func TestCVE202613322AConsoleKeepsOnlySoMuchOfWhatAGuestWrites(t *testing.T) {
	g := newGuest(t)
	consoles := NewConsoles()
	defer consoles.Close()
	if _, err := consoles.Open(t.Context(), "guest", g.dial); err != nil {
		t.Fatal(err)
	}
	conn := g.conn(t)
	text := []byte(strings.Repeat("x", 1<<20))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 64 {
		if _, err := conn.Write(text); err != nil {
			t.Fatalf("the guest is held up: %v", err)
		}
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("64 MiB of a guest's output made %d bytes", used)
	}
}

func TestFirstLineOfAConsole(t *testing.T) {
	g := newGuest(t)
	consoles := NewConsoles()
	t.Cleanup(consoles.Close)
	console, err := consoles.Open(t.Context(), "guest", g.dial)
	if err != nil {
		t.Fatal(err)
	}
	conn, before := g.conn(t), time.Now()
	if _, err := conn.Write([]byte("\x1b[2JSeaBIOS ")); err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if at, ok := console.FirstLine(impatient); ok {
		t.Errorf("half a line is complete at %v", at)
	}
	for range 2 { // the second line does not count
		if _, err := conn.Write([]byte("(version 1)\r\n")); err != nil {
			t.Fatal(err)
		}
		first, ok := console.FirstLine(t.Context())
		if !ok || first.Before(before) || first.After(time.Now()) {
			t.Errorf("the first line is of %v: %v", first, ok)
		}
		before = first
	}
	_ = conn.Close()
	<-console.done
	if at, ok := console.FirstLine(t.Context()); !ok || !at.Equal(before) {
		t.Errorf("after the guest's end, the first line is of %v: %v", at, ok)
	}

	silent, err := consoles.Open(t.Context(), "guest", g.dial)
	if err != nil {
		t.Fatal(err)
	}
	_ = g.conn(t).Close()
	if at, ok := silent.FirstLine(t.Context()); ok {
		t.Errorf("a guest that has ended without a line wrote one at %v", at)
	}
}
