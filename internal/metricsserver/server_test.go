package metricsserver

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	client "github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/internal/greeting"
)

const page = "kubevirt_vm_info{namespace=\"shop\",name=\"till\"} 1\n"

var pages = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) })

// apiServer knows the tokens "reader" and "tenant". It checks the questions about rights.
type apiServer struct {
	*httptest.Server
	reviews atomic.Int32
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, r *http.Request) {
		s.reviews.Add(1)
		var review authenticationv1.TokenReview
		s.read(t, r, &review)
		switch review.Spec.Token {
		case "reader", "tenant":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
				Username: review.Spec.Token, UID: "u", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
			}}
		default:
			review.Status.Error = "invalid bearer token"
		}
		answer(t, w, review)
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		s.read(t, r, &review)
		want := authorizationv1.SubjectAccessReviewSpec{User: review.Spec.User, UID: "u", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}},
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}}
		if !reflect.DeepEqual(review.Spec, want) {
			t.Errorf("the API server is asked %+v", review.Spec)
		}
		review.Status.Allowed = review.Spec.User == "reader"
		answer(t, w, review)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) read(t *testing.T, r *http.Request, into any) {
	t.Helper()
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		t.Errorf("reading a review: %v", err)
	}
}

func answer(t *testing.T, w http.ResponseWriter, review any) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		t.Errorf("answering a review: %v", err)
	}
}

func (s *apiServer) gate(t *testing.T) *gate {
	t.Helper()
	r, err := newReviews(&rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return newGate(r.ask, logr.Discard())
}

func serveMetrics(t *testing.T, g *gate, folder string) string {
	t.Helper()
	return serve(t, metricsServer(pages, g, logr.Discard()), secured(&files{folder: folder}, nil))
}

func serve(t *testing.T, server *http.Server, config *tls.Config) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serving: %v", err)
		}
	})
	return address
}

func certificate(t *testing.T, folder, name string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(folder, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func prometheus(known *x509.Certificate, from string) *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(known)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "metrics"}, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
	}}
}

func get(t *testing.T, c *http.Client, method, url, authorization string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.ProtoMajor != 1 {
		t.Errorf("it speaks %s, by which one connection asks many things at a time", response.Proto)
	}
	return response.StatusCode, string(body)
}

func TestMetricsAreForThoseWhoMayReadThem(t *testing.T) {
	folder, api := t.TempDir(), newAPIServer(t)
	known := certificate(t, folder, "metrics")
	address := serveMetrics(t, api.gate(t), folder)
	c := prometheus(known, "127.0.0.1")
	defer c.CloseIdleConnections()
	for _, test := range []struct {
		what, method, path, authorization string
		code                              int
		says                              string
	}{
		{"no token", "GET", "/metrics", "", 401, "send one in the header"},
		{"a password", "GET", "/metrics", "Basic cmVhZGVyOg==", 401, "send one in the header"},
		{"an empty token", "GET", "/metrics", "Bearer ", 401, "send one in the header"},
		{"a token that nobody has", "GET", "/metrics", "Bearer x", 401, "does not know this token"},
		{"a token without the right", "GET", "/metrics", "Bearer tenant", 403, "tenant may not get /metrics"},
		{"a token with the right", "GET", "/metrics", "Bearer reader", 200, page},
		{"the word in small letters", "GET", "/metrics", "bearer reader", 200, page},
		{"another verb", "POST", "/metrics", "Bearer reader", 405, ""},
		{"another path", "GET", "/metrics/x", "Bearer reader", 404, ""},
		{"profiles", "GET", "/debug/pprof/", "Bearer reader", 404, ""},
		{"variables", "GET", "/debug/vars", "Bearer reader", 404, ""},
		{"health", "GET", "/healthz", "", 404, ""},
		{"a header without end", "GET", "/metrics", "Bearer " + strings.Repeat("x", 3*greeting.MaxHeader), 431, ""},
	} {
		code, body := get(t, c, test.method, "https://"+address+test.path, test.authorization)
		if code != test.code || !strings.Contains(body, test.says) || code != 200 && strings.Contains(body, "till") {
			t.Errorf("%s: %d %q, want %d %q", test.what, code, body, test.code, test.says)
		}
	}
	if code, body := get(t, http.DefaultClient, "GET", "http://"+address+"/metrics", "Bearer reader"); code != 400 {
		t.Errorf("without TLS: %d %q", code, body)
	}
}

// An admitted reader must stay so for a minute; without the API server nobody may be admitted after that.
func TestWithoutTheAPIServerMetricsAreClosed(t *testing.T) {
	api := newAPIServer(t)
	g := api.gate(t)
	ask := func(token string) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		g.guard(pages).ServeHTTP(w, r)
		return w.Code
	}
	if code := ask("reader"); code != 200 {
		t.Fatalf("with the API server: %d", code)
	}
	api.Close()
	if code := ask("reader"); code != 200 {
		t.Errorf("a moment later: %d", code)
	}
	if code := ask("tenant"); code != 503 {
		t.Errorf("somebody who is new: %d", code)
	}
	g.allowed.RemoveAll(func(any) bool { return true }) // as after allowedFor
	if code := ask("reader"); code != 503 {
		t.Errorf("when the API server's word has become old: %d", code)
	}
}

func TestConnectionsOfStrangersAreBounded(t *testing.T) {
	folder, api := t.TempDir(), newAPIServer(t)
	known := certificate(t, folder, "metrics")
	address := serveMetrics(t, api.gate(t), folder)
	c := prometheus(known, "127.0.0.1")
	defer c.CloseIdleConnections()
	dialed := 0
	transport := c.Transport.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		dialed++
		return dial(ctx, network, to)
	}
	read := func(what string) {
		t.Helper()
		if code, body := get(t, c, "GET", "https://"+address+"/metrics", "Bearer reader"); code != 200 {
			t.Errorf("%s: %d %q", what, code, body)
		}
	}
	read("before the flood")
	var flood []net.Conn
	stranger := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	for range 3 * room {
		conn, err := stranger.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		flood = append(flood, conn)
	}
	// Two thirds of them must go, the oldest first.
	for i, conn := range flood[:2*room] {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		var deadline net.Error
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.As(err, &deadline) && deadline.Timeout() {
			t.Fatalf("connection %d of a stranger is held: %v", i, err)
		}
	}
	read("during the flood")
	if dialed != 1 {
		t.Errorf("Prometheus had to connect %d times: strangers have displaced it", dialed)
	}
}

func TestHealthNeedsNoTokenAndTellsNothing(t *testing.T) {
	var failure error
	address := serve(t, healthServer(func(*http.Request) error { return failure }, logr.Discard()), nil)
	for _, test := range []struct {
		path  string
		fails error
		code  int
	}{
		{"/healthz", errors.New("till is not ready"), 200},
		{"/readyz", nil, 200},
		{"/readyz", errors.New("till is not ready"), 500},
		{"/readyz?verbose=1", errors.New("till is not ready"), 500},
		{"/metrics", nil, 404},
		{"/debug/pprof/", nil, 404},
		{"/debug/vars", nil, 404},
		{"/", nil, 404},
	} {
		failure = test.fails
		code, body := get(t, http.DefaultClient, "GET", "http://"+address+test.path, "")
		if code != test.code || strings.Contains(body, "till") {
			t.Errorf("%s: %d %q, want %d", test.path, code, body, test.code)
		}
	}
}

// A probe may take longer than a caller has for its request.
func TestAProbeMayTakeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		lazy := healthServer(func(r *http.Request) error {
			select {
			case <-time.After(6 * greeting.HeaderTimeout):
				return nil
			case <-r.Context().Done():
				return r.Context().Err()
			}
		}, logr.Discard())
		listener := &single{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
		listener.conn <- server
		ended := make(chan error, 1)
		go func() { ended <- lazy.Serve(listener) }()
		if _, err := fmt.Fprint(client, "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil || response.StatusCode != 200 {
			t.Errorf("%v, %v", response, err)
		}
		_ = client.Close()
		_ = lazy.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server ended with %v", err)
		}
	})
}

// single is a listener with one connection.
type single struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (s *single) Accept() (net.Conn, error) {
	select {
	case conn := <-s.conn:
		return conn, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}
func (s *single) Close() error   { close(s.closed); return nil }
func (s *single) Addr() net.Addr { return &net.TCPAddr{} }

// The kubelet mounts the Secret late, and replaces its files.
func TestTheCertificateComesLateAndChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &files{folder: t.TempDir()}
		served := func() string {
			pair, err := f.current()
			if err != nil {
				return err.Error()
			}
			return pair.Leaf.DNSNames[0]
		}
		if got := served(); !strings.Contains(got, "no certificate for metrics in "+f.folder) {
			t.Errorf("an empty folder: %s", got)
		}
		certificate(t, f.folder, "first")
		time.Sleep(lookEvery)
		if got := served(); got != "first" {
			t.Errorf("when it has come: %s", got)
		}
		certificate(t, f.folder, "second")
		if got := served(); got != "first" {
			t.Errorf("the folder is read for every caller: %s", got)
		}
		time.Sleep(lookEvery)
		if got := served(); got != "second" {
			t.Errorf("when it was replaced: %s", got)
		}
		if err := os.WriteFile(filepath.Join(f.folder, "tls.key"), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
		if got := served(); got != "second" {
			t.Errorf("while it is being replaced: %s", got)
		}
	})
}

func TestTheKubeVirtObjectRestrictsTLS(t *testing.T) {
	folder := t.TempDir()
	certificate(t, folder, "metrics")
	config := secured(&files{folder: folder}, func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 })
	address := serve(t, metricsServer(pages, newGate(nil, logr.Discard()), logr.Discard()), config)
	for version, refused := range map[uint16]bool{tls.VersionTLS12: true, tls.VersionTLS13: false} {
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MaxVersion: version})
		if (err != nil) != refused {
			t.Errorf("version %x: %v", version, err)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}

func TestReadinessIsAskedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, c := range map[string]struct {
			check func(*http.Request) error
			want  bool
		}{
			"it is ready":     {func(*http.Request) error { return nil }, true},
			"it is not ready": {func(*http.Request) error { return errors.New("no") }, false},
			"it waits until it is": {func(r *http.Request) error {
				<-r.Context().Done()
				return r.Context().Err()
			}, false},
		} {
			began := time.Now()
			if got := Readiness(c.check)(); got != c.want || time.Since(began) > readinessTimeout {
				t.Errorf("%s: %v after %s", what, got, time.Since(began))
			}
		}
	})
}

func TestPagesAreCompressedIfTheyShallBe(t *testing.T) {
	registry := client.NewRegistry()
	depth := client.NewGaugeVec(client.GaugeOpts{Name: "workqueue_depth", Help: "Depth."}, []string{"name"})
	registry.MustRegister(depth)
	depth.WithLabelValues("vm").Set(2)
	for uncompressed, encoding := range map[bool]string{true: "", false: "gzip"} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		request.Header.Set("Accept-Encoding", "gzip")
		answer := httptest.NewRecorder()
		pagesOf(registry, uncompressed).ServeHTTP(answer, request)
		if answer.Code != http.StatusOK || answer.Header().Get("Content-Encoding") != encoding {
			t.Errorf("uncompressed %v: %d, %v", uncompressed, answer.Code, answer.Header())
		}
		if text := answer.Body.String(); uncompressed && !strings.Contains(text, "\nkubevirt_workqueue_depth{name=\"vm\"} 2\n") {
			t.Errorf("the page is %s", text)
		}
	}
}
