package web

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// echo is a WebSocket's far end. It refuses what kube-apiserver refuses, and keeps the headers that it got.
func echo(t *testing.T, got chan<- http.Header, ended chan<- struct{}) http.Handler {
	upgrader := websocket.Upgrader{Subprotocols: []string{string(streamAnswer)}, CheckOrigin: func(*http.Request) bool { return true }, EnableCompression: true}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" && r.Header.Get("Origin") == "" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		got <- r.Header
		ws, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			t.Errorf("upgrading: %v", err)
			return
		}
		defer func() {
			_ = ws.Close()
			ended <- struct{}{}
		}()
		for {
			kind, message, err := ws.ReadMessage()
			if err != nil {
				return
			}
			if err := ws.WriteMessage(kind, append([]byte("echo "), message...)); err != nil {
				return
			}
		}
	})
}

func (b *browser) mustDial(target string, protocol answerKind) *websocket.Conn {
	b.t.Helper()
	ws, response, err := b.dial(target, string(protocol))
	if err != nil {
		b.t.Fatalf("%s: %v, %+v", target, err, response)
	}
	b.t.Cleanup(func() { _ = ws.Close() })
	if ws.Subprotocol() != string(protocol) {
		b.t.Errorf("%s: the browser got the subprotocol %q and breaks the connection; want %q", target, ws.Subprotocol(), protocol)
	}
	return ws
}

func TestStreamsPassAsWebSockets(t *testing.T) {
	for target, protocol := range map[string]answerKind{
		vmi + "/console": streamAnswer, vmi + "/vnc": streamAnswer, vms + "?watch=true": watchAnswer,
	} {
		t.Run(target, func(t *testing.T) {
			got, ended := make(chan http.Header, 1), make(chan struct{}, 1)
			b := open(t, echo(t, got, ended))
			ws := b.mustDial(target, protocol)
			if err := ws.WriteMessage(websocket.BinaryMessage, []byte("hello")); err != nil {
				t.Fatal(err)
			}
			if _, message, err := ws.ReadMessage(); err != nil || string(message) != "echo hello" {
				t.Errorf("got %q, %v", message, err)
			}
			header := <-got
			for name, values := range header {
				allowed := []string{"Connection", "Upgrade", "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Protocol", "Origin", "User-Agent", "Accept-Encoding"}
				if !slices.Contains(allowed, name) || strings.Contains(strings.Join(values, ""), b.secret) {
					t.Errorf("the API server got %s: %q", name, values)
				}
			}
			if origin := header.Get("Origin"); strings.Contains(origin, "localhost") {
				t.Errorf("the API server got the page's origin %s", origin)
			}
			_ = ws.Close()
			await(t, ended, "the browser has closed the WebSocket, and its far end is still open")
		})
	}
}

func await(t *testing.T, done <-chan struct{}, otherwise string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(deadline):
		t.Fatal(otherwise)
	}
}

func TestStreamsEndWithTheirSessionAndWithTheServer(t *testing.T) {
	for name, end := range map[string]func(*browser){
		"the page ends its session": func(b *browser) { b.do("DELETE", "/session", "") },
		"Ctrl-C":                    func(b *browser) { b.end() },
	} {
		t.Run(name, func(t *testing.T) {
			got, ended := make(chan http.Header, 1), make(chan struct{}, 1)
			b := open(t, echo(t, got, ended))
			ws := b.mustDial(vmi+"/console", streamAnswer)
			end(b)
			await(t, ended, "its far end is still open")
			_ = ws.SetReadDeadline(time.Now().Add(deadline))
			if _, _, err := ws.ReadMessage(); err == nil || strings.Contains(err.Error(), "timeout") {
				t.Errorf("the browser's end: %v; want it closed", err)
			}
		})
	}
}

func TestOnlySoManyStreamsAreOpen(t *testing.T) {
	got, ended := make(chan http.Header, maxStreams), make(chan struct{}, maxStreams)
	b := open(t, echo(t, got, ended))
	var last *websocket.Conn
	for range maxStreams {
		last = b.mustDial(vmi+"/console", streamAnswer)
	}
	if _, response, err := b.dial(vmi+"/console", string(streamAnswer)); err == nil || response == nil || response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one more: %v, %v; want 429", response, err)
	}
	_ = last.Close()
	await(t, ended, "a stream that the browser has closed goes on")
}

func TestAWebSocketThatIsRefusedTellsWhy(t *testing.T) {
	b := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/vnc") {
			write(w, "application/json", "{}") // no upgrade
			return
		}
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"kind":"Status","code":409,"message":"it is not running"}`))
	}))
	for target, want := range map[string]int{vmi + "/console": http.StatusConflict, vmi + "/vnc": http.StatusBadGateway} {
		_, response, err := b.dial(target, string(streamAnswer))
		if err == nil || response == nil || response.StatusCode != want {
			t.Errorf("%s: %v, %v; want %d", target, response, err, want)
		}
	}
	// A browser hides that answer, so the page asks again without a WebSocket.
	if s := b.status(b.do("GET", vmi+"/console", "")); s.Message != "it is not running" {
		t.Errorf("asked without a WebSocket: %+v", s)
	}
	if _, response, err := b.dial(vmi+"/console", string(watchAnswer)); err == nil || response == nil || response.StatusCode != http.StatusBadRequest {
		t.Errorf("a console by the subprotocol of a watch: %v, %v; want 400", response, err)
	}
}
