package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func (b *browser) proof(nonce string, headers ...string) (int, string) {
	b.t.Helper()
	response := b.do("GET", "/proof?nonce="+nonce, "", headers...)
	var given struct{ Proof string }
	if err := json.NewDecoder(response.Body).Decode(&given); err != nil {
		b.t.Fatal(err)
	}
	return response.StatusCode, given.Proof
}

func TestAServerProvesThatItGaveTheSession(t *testing.T) {
	b, other := open(t, http.NotFoundHandler()), open(t, http.NotFoundHandler())
	key, err := hex.DecodeString(b.key)
	if err != nil || len(key) != sha256.Size {
		t.Fatalf("the key is %q, %v", b.key, err)
	}
	sum := hmac.New(sha256.New, key)
	sum.Write([]byte("a1-b2"))
	want := hex.EncodeToString(sum.Sum(nil))
	// A page that is not sure does not show its session.
	if code, got := b.proof("a1-b2", "Cookie: ", sessionHeader+": "); code != http.StatusOK || got != want {
		t.Errorf("proved %d %q; want %q", code, got, want)
	}
	if _, got := other.proof("a1-b2"); got == want {
		t.Error("another server proves the same")
	}
	for _, nonce := range []string{"", strings.Repeat("x", maxNonce+1)} {
		if code, _ := b.proof(nonce); code != http.StatusBadRequest {
			t.Errorf("a nonce of %d bytes: %d; want 400", len(nonce), code)
		}
	}
	// Whoever has taken the port sees requests, and must not see the key in an answer that he passes on.
	text, err := io.ReadAll(b.do("GET", "/session", "").Body)
	if err != nil || strings.Contains(string(text), b.key) {
		t.Errorf("a session that goes on is told the key: %q, %v", text, err)
	}
}

func TestASessionsLifeEndsWithIt(t *testing.T) {
	for name, end := range map[string]func(*browser){
		"the page ends its session": func(b *browser) { b.do("DELETE", "/session", "") },
		"Ctrl-C":                    func(b *browser) { b.end() },
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, http.NotFoundHandler())
			ws := b.mustDial("/session", lifeAnswer)
			end(b)
			_ = ws.SetReadDeadline(time.Now().Add(deadline))
			if _, _, err := ws.ReadMessage(); err == nil || strings.Contains(err.Error(), "timeout") {
				t.Errorf("its WebSocket: %v; want it closed", err)
			}
		})
	}
}

func TestASessionsLifeNeedsTheSession(t *testing.T) {
	b := open(t, http.NotFoundHandler())
	if _, response, err := b.dial("/session", string(watchAnswer)); err == nil || response == nil || response.StatusCode != http.StatusBadRequest {
		t.Errorf("by another subprotocol: %v, %v; want 400", response, err)
	}
	b.secret = "x" + b.secret
	if _, response, err := b.dial("/session", string(lifeAnswer)); err == nil || response == nil || response.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the session: %v, %v; want 401", response, err)
	}
}
