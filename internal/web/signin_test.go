package web

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

const (
	clusterOrigin = "https://example.com"
	goodToken     = "good.token"
)

var testKey = []byte(strings.Repeat("k", minSessionKey))

// knowing answers whose a token is, and everything else by next.
func knowing(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case !strings.HasPrefix(token, goodToken):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"kind":"Status","code":401}`)
		case strings.HasSuffix(r.URL.Path, reviewPath):
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(map[string]any{"status": map[string]any{"userInfo": map[string]string{"username": "owner-of-" + token, "uid": "1"}}})
		default:
			next(w, r)
		}
	})
}

func empty(w http.ResponseWriter, _ *http.Request) { write(w, "application/json", "{}") }

// openCluster returns a browser before a server where people sign in. Nobody has.
func openCluster(t *testing.T, upstream http.Handler) *browser {
	t.Helper()
	far := httptest.NewServer(upstream)
	t.Cleanup(far.Close)
	known := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(known.Close)
	target, err := url.Parse(far.URL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, origin: clusterOrigin, host: "example.com", secret: ofThePage, ended: make(chan error, 1)}
	var ctx context.Context
	ctx, b.stop = context.WithCancel(t.Context())
	b.server, err = New(ctx, Options{Origin: clusterOrigin, Upstream: target, Transport: &http.Transport{}, Pages: testPages, About: About{Namespace: "lab"}, SignIn: &SignIn{
		Key: testKey, Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &known.TLS.Certificates[0], nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	go func() { b.ended <- b.server.Serve(listener) }()
	t.Cleanup(b.end)
	transport := known.Client().Transport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
	}
	transport.ForceAttemptHTTP2 = false
	b.client = &http.Client{Timeout: deadline, Transport: transport}
	return b
}

// signIn shows a token and returns the answer. The browser keeps the cookie.
func (b *browser) signIn(token string) *http.Response {
	b.t.Helper()
	body, err := json.Marshal(map[string]string{"token": token})
	if err != nil {
		b.t.Fatal(err)
	}
	response := b.do("POST", "/session", string(body), "Content-Type: application/json")
	if response.StatusCode == http.StatusOK {
		var given signedIn
		if err := json.NewDecoder(response.Body).Decode(&given); err != nil || given.Secret == "" {
			b.t.Errorf("the page is told %+v, %v; want its half of the session", given, err)
		}
		b.secret = given.Secret
	}
	for _, c := range response.Cookies() {
		b.cookie = c.Name + "=" + c.Value
		if c.Name != "__Host-drydock-web" || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" {
			b.t.Errorf("the cookie is %+v; want it Secure, HttpOnly, Strict and of this host only", c)
		}
	}
	return response
}

func (b *browser) mustSignIn(token string) {
	b.t.Helper()
	if response := b.signIn(token); response.StatusCode != http.StatusOK {
		b.t.Fatalf("signing in: %+v", b.status(response))
	}
}

func (b *browser) dialTLS(target string, protocol answerKind, headers http.Header) (*websocket.Conn, *http.Response, error) {
	transport := b.client.Transport.(*http.Transport)
	dialer := websocket.Dialer{
		NetDialContext: transport.DialContext, TLSClientConfig: transport.TLSClientConfig.Clone(),
		Subprotocols: []string{string(protocol), sessionProtocol + b.secret}, HandshakeTimeout: deadline,
	}
	sent := http.Header{"Origin": {b.origin}, "Cookie": {b.cookie}, "Sec-Fetch-Site": {"same-origin"}}
	for name, values := range headers {
		sent[name] = values
	}
	ws, response, err := dialer.DialContext(b.t.Context(), "wss://"+b.host+target, sent)
	if err == nil {
		b.t.Cleanup(func() { _ = ws.Close() })
	}
	return ws, response, err
}

func TestASignedInPageHasTheRightsOfItsToken(t *testing.T) {
	got := make(chan http.Header, 1)
	b := openCluster(t, knowing(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		write(w, "application/json", "{}")
	}))
	b.mustSignIn(" " + goodToken + "\n")
	if strings.Contains(b.cookie, "good") {
		t.Errorf("the cookie shows the token: %s", b.cookie)
	}
	text, err := io.ReadAll(b.do("GET", "/session", "").Body)
	if err != nil || !strings.Contains(string(text), `"user":"owner-of-good.token"`) || !strings.Contains(string(text), `"namespace":"lab"`) {
		t.Errorf("the page is told %s, %v", text, err)
	}
	if code := b.do("GET", vms, "", "Authorization: Bearer stolen", "Impersonate-User: admin").StatusCode; code != http.StatusOK {
		t.Fatalf("a request: %d", code)
	}
	if header := <-got; header.Get("Authorization") != "Bearer "+goodToken || header.Get("Impersonate-User") != "" || header.Get("Cookie") != "" {
		t.Errorf("the API server got %v; want the session's token and nothing else of the browser", header)
	}
}

func TestATokenThatTheClusterDoesNotKnowOpensNothing(t *testing.T) {
	var asked atomic.Int32
	b := openCluster(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		knowing(empty).ServeHTTP(w, r)
	}))
	for token, want := range map[string]struct{ code, asked int }{
		"bad":                                  {http.StatusForbidden, 1},
		"":                                     {http.StatusBadRequest, 0},
		"a b":                                  {http.StatusBadRequest, 0},
		"a\r\nImpersonate-User: x":             {http.StatusBadRequest, 0},
		"é":                                    {http.StatusBadRequest, 0},
		strings.Repeat("a", maxTokenBytes+1):   {http.StatusRequestEntityTooLarge, 0},
		goodToken + strings.Repeat("\x00", 1):  {http.StatusBadRequest, 0},
		"a" + strings.Repeat(" ", maxExchange): {http.StatusRequestEntityTooLarge, 0},
	} {
		asked.Store(0)
		response := b.signIn(token)
		if response.StatusCode != want.code || int(asked.Load()) != want.asked || len(response.Cookies()) > 0 {
			t.Errorf("%.20q: answered %d with %d cookies, the API server was asked %d times; want %+v and no cookie", token, response.StatusCode, len(response.Cookies()), asked.Load(), want)
		}
	}
	b.mustSignIn(goodToken + strings.Repeat("a", maxTokenBytes-len(goodToken)))
}

func TestAnAnonymousUserIsNobody(t *testing.T) {
	b := openCluster(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"status":{"userInfo":{"username":"system:anonymous"}}}`)
	}))
	if response := b.signIn(goodToken); response.StatusCode != http.StatusForbidden || len(response.Cookies()) > 0 {
		t.Errorf("answered %d", response.StatusCode)
	}
}

// A pod is replaced at any time, and there are two.
func TestASessionOutlivesItsServer(t *testing.T) {
	first, second := openCluster(t, knowing(empty)), openCluster(t, knowing(empty))
	first.mustSignIn(goodToken)
	first.end()
	second.cookie, second.secret = first.cookie, first.secret
	if code := second.do("GET", vms, "").StatusCode; code != http.StatusOK {
		t.Errorf("another server of the same key: %d", code)
	}
}

func TestOnlyACookieOfThisConsoleIsASession(t *testing.T) {
	b := openCluster(t, knowing(empty))
	b.mustSignIn(goodToken)
	name, value, _ := strings.Cut(b.cookie, "=")
	b.server.signIn.now = func() time.Time { return time.Now().Add(sessionLife - time.Minute) }
	if code := b.do("GET", vms, "").StatusCode; code != http.StatusOK {
		t.Errorf("before its end: %d", code)
	}
	sealedBy := func(key, origin string) string {
		other, err := newSeal([]byte(key), forSession, origin)
		if err != nil {
			t.Fatal(err)
		}
		cookie, err := other.close(sealed{ID: "a", User: "b", Token: goodToken, Until: time.Now().Add(2 * sessionLife)})
		if err != nil {
			t.Fatal(err)
		}
		return cookie
	}
	for what, cookie := range map[string]string{
		"none":               "",
		"the token":          name + "=" + goodToken,
		"cut":                name + "=" + value[:len(value)-4],
		"changed":            name + "=" + "AAAA" + value[4:],
		"of another key":     name + "=" + sealedBy(strings.Repeat("x", minSessionKey), clusterOrigin),
		"of another console": name + "=" + sealedBy(string(testKey), "https://other.example.com"),
		"of another name":    "drydock-web=" + value,
		"too long":           name + "=" + strings.Repeat("A", maxCookie+4),
	} {
		if code := b.do("GET", vms, "", "Cookie: "+cookie).StatusCode; code != http.StatusUnauthorized {
			t.Errorf("a cookie that is %s: %d; want 401", what, code)
		}
	}
	b.server.signIn.now = func() time.Time { return time.Now().Add(sessionLife + time.Minute) }
	if code := b.do("GET", vms, "").StatusCode; code != http.StatusUnauthorized {
		t.Errorf("after twelve hours: %d; want 401", code)
	}
}

func TestAShortKeyIsRefused(t *testing.T) {
	_, err := New(t.Context(), Options{Origin: clusterOrigin, Pages: testPages, SignIn: &SignIn{Key: testKey[1:]}})
	if !errors.Is(err, ErrShortKey) {
		t.Errorf("got %v, want %v", err, ErrShortKey)
	}
}

// A cookie goes with requests that another page makes; a header and a subprotocol don't.
func TestASignedInPageSaysThatItAsks(t *testing.T) {
	b := openCluster(t, knowing(empty))
	b.mustSignIn(goodToken)
	for _, said := range []string{"", "x", ofThePage} {
		if code := b.do("GET", vms, "", sessionHeader+": "+said).StatusCode; code != http.StatusUnauthorized {
			t.Errorf("a request that says %q: %d; want 401", said, code)
		}
	}
	b.secret = ""
	if _, response, err := b.dialTLS(vms+"?watch=true", watchAnswer, nil); err == nil || response == nil || response.StatusCode != http.StatusUnauthorized {
		t.Errorf("a WebSocket without it: %v, %v; want 401", response, err)
	}
}

func TestOnlyTheClustersOwnOriginIsServed(t *testing.T) {
	b := openCluster(t, knowing(empty))
	b.mustSignIn(goodToken)
	for what, test := range map[string]struct {
		headers []string
		host    string
		code    int
	}{
		"another name":             {nil, "evil.example", http.StatusMisdirectedRequest},
		"the pod's address":        {nil, "10.0.0.1:8443", http.StatusMisdirectedRequest},
		"a foreign origin":         {[]string{"Origin: https://evil.example"}, "example.com", http.StatusForbidden},
		"the same name by HTTP":    {[]string{"Origin: http://example.com"}, "example.com", http.StatusForbidden},
		"a name beside it":         {[]string{"Sec-Fetch-Site: same-site"}, "example.com", http.StatusForbidden},
		"a name that is forwarded": {[]string{"X-Forwarded-Host: example.com"}, "evil.example", http.StatusMisdirectedRequest},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", clusterOrigin+vms, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = test.host
		r.Header.Set("Cookie", b.cookie)
		r.Header.Set(sessionHeader, b.secret)
		for _, line := range test.headers {
			key, value, _ := strings.Cut(line, ": ")
			r.Header.Set(key, value)
		}
		response, err := b.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != test.code {
			t.Errorf("%s: %d; want %d", what, response.StatusCode, test.code)
		}
	}
	if _, response, err := b.dialTLS(vmi+"/console", streamAnswer, http.Header{"Origin": {"https://evil.example"}}); err == nil || response == nil || response.StatusCode != http.StatusForbidden {
		t.Errorf("a foreign page's WebSocket: %v, %v; want 403", response, err)
	}
	if code := b.do("POST", "/session", `{"token":"`+goodToken+`"}`, "Content-Type: application/json", "Origin: https://evil.example").StatusCode; code != http.StatusForbidden {
		t.Errorf("a foreign page that signs somebody in: %d; want 403", code)
	}
}

func TestTheClustersPagesAreProtected(t *testing.T) {
	b := openCluster(t, knowing(empty))
	for _, target := range []string{"/", "/session", "/signin", "/assets/main-1.js", vms} {
		response := b.do("GET", target, "")
		checkProtection(t, response)
		if response.Header.Get("Strict-Transport-Security") == "" {
			t.Errorf("%s: a browser may come by HTTP next time", target)
		}
	}
	if csp := b.do("GET", "/", "").Header.Get("Content-Security-Policy"); !strings.Contains(csp, "connect-src 'self' wss://example.com;") {
		t.Errorf("the policy is %q", csp)
	}
	if code := b.do("GET", "/proof?nonce=1", "").StatusCode; code != http.StatusUnauthorized {
		t.Errorf("a proof, which only virtctl web gives: %d", code)
	}
}

// The API server's no is the end of the session, since it is of the session's own token.
func TestATokenThatIsOverEndsTheSession(t *testing.T) {
	var over atomic.Bool
	b := openCluster(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if over.Load() {
			r.Header.Del("Authorization")
		}
		knowing(empty).ServeHTTP(w, r)
	}))
	b.mustSignIn(goodToken)
	over.Store(true)
	if s := b.status(b.do("GET", vms, "")); s.Code != http.StatusUnauthorized || !strings.Contains(s.Message, "sign in again") {
		t.Errorf("answered %+v", s)
	}
}

func TestStreamsEndWhenTheirUserSignsOut(t *testing.T) {
	got, ended := make(chan http.Header, 3), make(chan struct{}, 3)
	b := openCluster(t, knowing(echo(t, got, ended).ServeHTTP))
	b.mustSignIn(goodToken)
	mine, _, err := b.dialTLS(vmi+"/console", streamAnswer, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header := <-got; header.Get("Authorization") != "Bearer "+goodToken {
		t.Errorf("the console was opened with %v", header)
	}
	kept, half := b.cookie, b.secret
	b.mustSignIn(goodToken)
	other, _, err := b.dialTLS(vmi+"/console", streamAnswer, nil)
	if err != nil {
		t.Fatal(err)
	}
	response := b.do("DELETE", "/session", "", "Cookie: "+kept, sessionHeader+": "+half)
	if cleared := response.Cookies(); response.StatusCode != http.StatusOK || len(cleared) != 1 || cleared[0].MaxAge >= 0 {
		t.Errorf("signing out: %d, %v; want the cookie removed", response.StatusCode, cleared)
	}
	_ = mine.SetReadDeadline(time.Now().Add(deadline))
	if _, _, err := mine.ReadMessage(); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the stream of the session that ended: %v; want it closed", err)
	}
	if err := other.WriteMessage(websocket.TextMessage, []byte("a")); err != nil {
		t.Fatal(err)
	}
	_ = other.SetReadDeadline(time.Now().Add(deadline))
	if _, text, err := other.ReadMessage(); err != nil || string(text) != "echo a" {
		t.Errorf("the stream of another session of the user: %q, %v", text, err)
	}
}

func TestTheKubeletAsksByThePodsAddress(t *testing.T) {
	b := openCluster(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the API server was asked") }))
	r := httptest.NewRequest("GET", "/healthz", nil)
	r.Host = "10.0.0.1:8443"
	w := httptest.NewRecorder()
	b.server.ServeHTTP(w, r)
	if w.Code != http.StatusOK || w.Body.String() != "ok\n" {
		t.Errorf("answered %d %q", w.Code, w.Body)
	}
}

func TestAnOriginIsAsBrowsersWriteIt(t *testing.T) {
	for _, origin := range []string{"http://example.com", "https://Example.com", "https://example.com:443", "https://example.com/", "https://", "example.com", "https://a b", "https://u@example.com"} {
		if err := checkOrigin(origin, true); err == nil {
			t.Errorf("%q is taken", origin)
		}
	}
	for _, origin := range []string{"https://example.com", "https://vms.example.com:8443", "https://[2001:db8::1]:8443"} {
		if err := checkOrigin(origin, true); err != nil {
			t.Errorf("%q: %v", origin, err)
		}
	}
}
