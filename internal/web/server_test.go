package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/greeting"
)

// deadline bounds one wait on a busy machine.
const deadline = time.Minute

// browser is a page with a session on a server that runs, before an API server that the test plays.
type browser struct {
	t              *testing.T
	server         *Server
	origin, host   string
	cookie, secret string
	key            string
	client         *http.Client
	stop           context.CancelFunc
	ended          chan error
}

var testPages = fstest.MapFS{
	"index.html":         {Data: []byte("<!doctype html>")},
	"assets/main-1.js":   {Data: []byte("run()")},
	"assets/NOTICES.txt": {Data: []byte("notices")},
	"packages.json":      {Data: []byte("[]")},
}

func open(t *testing.T, upstream http.Handler) *browser {
	t.Helper()
	far := httptest.NewServer(upstream)
	t.Cleanup(far.Close)
	target, err := url.Parse(far.URL + "/prefix/")
	if err != nil {
		t.Fatal(err)
	}
	return openTo(t, target, http.DefaultTransport)
}

func openTo(t *testing.T, upstream *url.URL, transport http.RoundTripper) *browser {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, ended: make(chan error, 1)}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	b.host = "0123.localhost:" + port
	b.origin = "http://" + b.host
	var ctx context.Context
	ctx, b.stop = context.WithCancel(t.Context())
	b.server, err = New(ctx, Options{Origin: b.origin, Upstream: upstream, Transport: transport, Pages: testPages, About: About{Namespace: "lab"}})
	if err != nil {
		t.Fatal(err)
	}
	go func() { b.ended <- b.server.Serve(listener) }()
	t.Cleanup(b.end)
	// Like a browser, it finds all names of localhost here.
	b.client = &http.Client{Timeout: deadline, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
	}}}
	b.begin()
	return b
}

func (b *browser) end() {
	b.stop()
	b.client.CloseIdleConnections()
	select {
	case err := <-b.ended:
		if err != nil {
			b.t.Errorf("the server ended with %v", err)
		}
		b.ended <- nil
	case <-time.After(deadline):
		b.t.Error("the server does not end")
	}
}

// begin exchanges a new address for a session, as the page does.
func (b *browser) begin() {
	b.t.Helper()
	address, err := b.server.Address()
	if err != nil {
		b.t.Fatal(err)
	}
	code, found := strings.CutPrefix(address, b.origin+"/#code=")
	if !found {
		b.t.Fatalf("the address %s has no code in its fragment", address)
	}
	response := b.do("POST", "/session", `{"code":"`+code+`"}`, "Content-Type: application/json")
	var given struct{ Secret, Proof, Namespace string }
	if err := json.NewDecoder(response.Body).Decode(&given); err != nil || given.Secret == "" || given.Namespace != "lab" {
		b.t.Fatalf("beginning a session: %d, %+v, %v", response.StatusCode, given, err)
	}
	b.secret, b.key = given.Secret, given.Proof
	for _, c := range response.Cookies() {
		b.cookie = c.Name + "=" + c.Value
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" {
			b.t.Errorf("the cookie is %+v; want it HttpOnly, Strict and of this host only", c)
		}
	}
}

// do makes a request as the page makes it. Headers replace those of the page.
func (b *browser) do(method, target, body string, headers ...string) *http.Response {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.origin+target, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if method != http.MethodGet {
		r.Header.Set("Origin", b.origin)
	}
	r.Header.Set("Cookie", b.cookie)
	r.Header.Set(sessionHeader, b.secret)
	for _, line := range headers {
		key, value, _ := strings.Cut(line, ": ")
		r.Header.Set(key, value)
	}
	response, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

func (b *browser) status(response *http.Response) metav1.Status {
	b.t.Helper()
	var s metav1.Status
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil || s.Kind != "Status" || int(s.Code) != response.StatusCode {
		b.t.Errorf("answered %d %q, %v; want a Status of that code", response.StatusCode, text, err)
	}
	return s
}

func (b *browser) dial(target, protocol string) (*websocket.Conn, *http.Response, error) {
	dialer := websocket.Dialer{NetDialContext: b.client.Transport.(*http.Transport).DialContext, Subprotocols: []string{protocol, sessionProtocol + b.secret}, HandshakeTimeout: deadline}
	return dialer.DialContext(b.t.Context(), "ws://"+b.host+target, http.Header{"Origin": {b.origin}, "Cookie": {b.cookie}, "Sec-Fetch-Site": {"same-origin"}})
}

func write(w http.ResponseWriter, kind, text string) {
	w.Header().Set("Content-Type", kind)
	_, _ = io.WriteString(w, text)
}

func TestARequestOfThePageReachesTheAPIServer(t *testing.T) {
	b := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Add("Warning", `299 - "this will be refused soon"`)
		write(w, "application/json", fmt.Sprintf("%s %s %s %q %s", r.Method, r.URL, r.Header.Get("Content-Type"), body, r.Host))
	}))
	response := b.do("PUT", vms+"/one?dryRun=All", "{}", "Content-Type: application/json")
	text, _ := io.ReadAll(response.Body)
	want := "PUT /prefix" + vms + `/one?dryRun=All application/json "{}" ` + b.server.options.Upstream.Host
	if response.StatusCode != http.StatusOK || string(text) != want || response.Header.Get("Warning") == "" {
		t.Errorf("got %d %s %v; want %s, and its warning", response.StatusCode, text, response.Header, want)
	}
}

func TestNoHeaderOfTheBrowserReachesTheAPIServer(t *testing.T) {
	got := make(chan http.Header, 1)
	b := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		write(w, "application/json", "{}")
	}))
	b.do("POST", vms, "{}", "Content-Type: application/json", "Authorization: Bearer stolen", "Impersonate-User: admin", "Impersonate-Group: system:masters",
		"X-Remote-User: admin", "X-Remote-Group: system:masters", "X-Forwarded-For: 10.0.0.1", "Forwarded: for=10.0.0.1", "Proxy-Authorization: Basic eA",
		"Connection: Impersonate-Extra", "Impersonate-Extra: x", "Accept: text/html", "Accept-Language: de", "Referer: http://elsewhere/", "X-Other: x", "Te: trailers")
	header := <-got
	for name := range header {
		// The last two are of Go's transport.
		if !slices.Contains([]string{"Accept", "Content-Type", "Content-Length", "User-Agent", "Accept-Encoding"}, name) {
			t.Errorf("the API server got %s: %q", name, header[name])
		}
	}
	if accept := header["Accept"]; !slices.Equal(accept, []string{"application/json"}) {
		t.Errorf("the API server was asked for %q", accept)
	}
}

func TestNothingOfAnAnswerActsInTheBrowser(t *testing.T) {
	answers := map[string]func(http.ResponseWriter){
		"a page": func(w http.ResponseWriter) { write(w, "text/html", "<script>steal()</script>") },
		"a script": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/javascript")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "steal()")
		},
		"an error that is a page": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "<b>not\nnow</b>"+strings.Repeat("x", 1<<20))
		},
		"a redirection": func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://evil.example/")
			w.WriteHeader(http.StatusFound)
		},
		"a cookie and rights for others": func(w http.ResponseWriter) {
			w.Header().Set("Set-Cookie", cookieName+"=planted")
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.Header().Set("Content-Security-Policy", "default-src *")
			w.Header().Set("Clear-Site-Data", `"*"`)
			write(w, "application/json", "{}")
		},
		"a stranger to the API server": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"kind":"Status","code":401,"message":"Unauthorized"}`)
		},
		"a stranger to a proxy": func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) },
	}
	for name, play := range answers {
		t.Run(name, func(t *testing.T) {
			b := open(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { play(w) }))
			response := b.do("GET", vms, "")
			for _, header := range []string{"Location", "Set-Cookie", "Access-Control-Allow-Origin", "Clear-Site-Data"} {
				if value := response.Header.Get(header); value != "" {
					t.Errorf("the browser got %s: %s", header, value)
				}
			}
			if kind := response.Header.Get("Content-Type"); kind != "application/json" {
				t.Errorf("the type is %q", kind)
			}
			checkProtection(t, response)
			if response.StatusCode == http.StatusUnauthorized {
				t.Error("the page takes it for the end of its session")
			}
			if response.StatusCode != http.StatusOK {
				if s := b.status(response); s.Message == "" || len(s.Message) > 2*maxSentence || strings.Contains(s.Message, "\n") {
					t.Errorf("the sentence is %q", s.Message)
				}
			}
		})
	}
}

func checkProtection(t *testing.T, response *http.Response) {
	t.Helper()
	for header, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := response.Header.Get(header); got != want {
			t.Errorf("%s: %s is %q, want %q", response.Request.URL, header, got, want)
		}
	}
	policy := response.Header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("%s: the policy is %q", response.Request.URL, policy)
	}
}

func TestEveryAnswerIsProtected(t *testing.T) {
	b := open(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w, "application/json", "{}") }))
	for target, want := range map[string]struct {
		code            int
		caching, policy string
	}{
		"/":                   {http.StatusOK, "no-store", "script-src 'self'; "},
		"/assets/main-1.js":   {http.StatusOK, "public, max-age=31536000, immutable", "default-src 'none'; base-uri"},
		"/assets/NOTICES.txt": {http.StatusOK, "public, max-age=31536000, immutable", "default-src 'none'; base-uri"},
		"/assets/main-2.js":   {http.StatusNotFound, "no-store", "default-src 'none'; base-uri"},
		"/assets/../index.js": {http.StatusNotFound, "no-store", "default-src 'none'; base-uri"},
		"/packages.json":      {http.StatusForbidden, "no-store", "default-src 'none'; base-uri"},
		"/session":            {http.StatusOK, "no-store", "default-src 'none'; base-uri"},
		vms:                   {http.StatusOK, "no-store", "default-src 'none'; base-uri"},
		"/api/v1/secrets":     {http.StatusForbidden, "no-store", "default-src 'none'; base-uri"},
	} {
		response := b.do("GET", target, "")
		checkProtection(t, response)
		policy := response.Header.Get("Content-Security-Policy")
		if response.StatusCode != want.code || response.Header.Get("Cache-Control") != want.caching || !strings.Contains(policy, want.policy) {
			t.Errorf("%s: got %d, %q, %q; want %+v", target, response.StatusCode, response.Header.Get("Cache-Control"), policy, want)
		}
	}
	if csp := b.do("GET", "/", "").Header.Get("Content-Security-Policy"); !strings.Contains(csp, "style-src 'self'; ") || !strings.Contains(csp, "require-trusted-types-for 'script'; trusted-types 'none'") {
		t.Errorf("the page's policy is %q; want only its own styles, and trusted types", csp)
	}
}

// A stranger knows the port, and may know the origin.
func TestNothingPassesWithoutASession(t *testing.T) {
	b := open(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the API server was asked") }))
	for name, headers := range map[string][]string{
		"no cookie":     {"Cookie: x=y"},
		"no secret":     {sessionHeader + ": "},
		"another one":   {sessionHeader + ": " + strings.Repeat("a", 43)},
		"neither":       {"Cookie: x=y", sessionHeader + ": "},
		"of the bearer": {"Cookie: x=y", sessionHeader + ": ", "Authorization: Bearer x"},
	} {
		for _, target := range []string{vms, "/session", "/api/v1/nodes", "/api/v1/secrets"} {
			response := b.do("GET", target, "", headers...)
			if b.status(response).Code != http.StatusUnauthorized {
				t.Errorf("%s, %s: answered %d; want 401", name, target, response.StatusCode)
			}
		}
	}
	b.secret = strings.Repeat("a", 43)
	if _, response, err := b.dial(vms+"?watch=true", string(watchAnswer)); err == nil || response == nil || response.StatusCode != http.StatusUnauthorized {
		t.Errorf("a WebSocket without a session: %v, %v", response, err)
	}
}

func TestASessionEndsWhenThePageEndsIt(t *testing.T) {
	b := open(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w, "application/json", "{}") }))
	if got := b.do("DELETE", "/session", "").StatusCode; got != http.StatusOK {
		t.Errorf("ending it: %d", got)
	}
	if got := b.do("GET", vms, "").StatusCode; got != http.StatusUnauthorized {
		t.Errorf("after its end: %d; want 401", got)
	}
}

func TestARequestIsBounded(t *testing.T) {
	b := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		write(w, "application/json", "{}")
	}))
	for size, want := range map[int]int{maxBody: http.StatusOK, maxBody + 1: http.StatusRequestEntityTooLarge} {
		if got := b.do("POST", vms, strings.Repeat("x", size), "Content-Type: application/json").StatusCode; got != want {
			t.Errorf("a body of %d bytes: %d; want %d", size, got, want)
		}
	}
	if got := b.do("GET", vms, "", "X-Long: "+strings.Repeat("x", 2*greeting.MaxHeader)).StatusCode; got != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a long header: %d; want 431", got)
	}
	for method, kind := range map[string]string{"POST": "text/plain", "PUT": "application/yaml", "DELETE": "application/x-www-form-urlencoded"} {
		target := vms + "/one"
		if method == "POST" {
			target = vms
		}
		if got := b.do(method, target, "{}", "Content-Type: "+kind).StatusCode; got != http.StatusUnsupportedMediaType {
			t.Errorf("%s of %s: %d; want 415", method, kind, got)
		}
	}
}

func TestAnAnswerIsBounded(t *testing.T) {
	b := open(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		part := []byte(strings.Repeat(" ", 1<<20))
		for range maxAnswer>>20 + 4 {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}))
	n, err := io.Copy(io.Discard, b.do("GET", vms, "").Body)
	if err == nil || n > maxAnswer+1 {
		t.Errorf("the browser got %d bytes, %v; want an answer that is visibly cut", n, err)
	}
}

// The pages decide by the reason, see web/src/kube/failure.ts.
func TestAnAnswerThatSaysItIsTooLargeIsRefusedWithItsReason(t *testing.T) {
	b := open(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(maxAnswer+1))
	}))
	if s := b.status(b.do("GET", vms, "")); s.Code != http.StatusBadGateway || s.Reason != "AnswerTooLarge" {
		t.Errorf("answered %+v", s)
	}
}

func TestAnAPIServerThatIsDownIsASentence(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	b := openTo(t, &url.URL{Scheme: "http", Host: listener.Addr().String()}, http.DefaultTransport)
	if s := b.status(b.do("GET", vms, "")); s.Code != http.StatusBadGateway || !strings.Contains(s.Message, "can't be reached") || !strings.Contains(s.Message, "check that the cluster runs") {
		t.Errorf("answered %+v", s)
	}
	if _, response, err := b.dial(vms+"?watch=true", string(watchAnswer)); err == nil || response == nil || response.StatusCode != http.StatusBadGateway {
		t.Errorf("a watch: %v, %v; want 502", response, err)
	}
}

func TestAServerWithoutPagesIsRefused(t *testing.T) {
	if _, err := New(t.Context(), Options{Origin: "http://x:1", Pages: fstest.MapFS{"README": {}}}); !errors.Is(err, ErrNoPages) {
		t.Errorf("got %v, want %v", err, ErrNoPages)
	}
	if _, err := New(t.Context(), Options{Origin: "https://x", Pages: testPages}); err == nil {
		t.Error("an origin of https, which is not served without signing in, is taken")
	}
	odd := fstest.MapFS{"index.html": {}, "assets/page.html": {}}
	if _, err := New(t.Context(), Options{Origin: "http://x:1", Pages: odd}); err == nil || !strings.Contains(err.Error(), "page.html") {
		t.Errorf("an asset that would be a page: %v", err)
	}
}
