// Package web is the server of the web console: it serves the pages, gives out sessions, and passes the requests of its
// own pages to the API server. It owns the table of the requests that pass. It must not have rights of its own, keep
// anything but sessions, or decide permissions: the API server does, for the credentials of the transport.
package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/answer"
	"drydock.dev/drydock/internal/greeting"
)

const (
	// maxStrangers bounds the connections of people who have no session, or ask for nothing with it. The oldest makes
	// room for a new one. Browsers and proxies from which a session has come have as many beside them.
	maxStrangers = 128
	// maxFields bounds the lines of a header. Each costs far more memory than it has bytes, as long as the request lasts.
	maxFields = 100
	// maxBody is kube-apiserver's own limit.
	maxBody     = 3 << 20
	maxExchange = 4 << 10
	// patience bounds a request that is no stream, from its first byte to the last one of its answer.
	patience = time.Minute
	// healthPath says only that a server of users who sign in listens: the kubelet asks, by the pod's address.
	healthPath = "/healthz"
)

// Options are of one server.
type Options struct {
	// Origin is the only one that is served, such as http://NAME.localhost:PORT. With SignIn it is of https.
	Origin string
	// Upstream is the API server's address. Transport has the user's credentials, unless users sign in, and speaks
	// HTTP/1.1, from which WebSockets are upgraded.
	Upstream  *url.URL
	Transport http.RoundTripper
	// Pages is the bundle of the pages.
	Pages fs.FS
	// About is told to the pages.
	About About
	// SignIn lets people sign in, each with a token of their own. Otherwise the server is one user's, who gets its address.
	SignIn *SignIn
}

// SignIn is of a server in a cluster.
type SignIn struct {
	// Key encrypts sessions. All replicas have the same.
	Key []byte
	// Certificate is of the server.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Provider is nil if people sign in by showing a token only.
	Provider IdentityProvider
}

// About describes the cluster to the pages.
type About struct {
	Namespace string `json:"namespace"`
	Context   string `json:"context"`
	Server    string `json:"server"`
	Version   string `json:"version"`
}

// Server serves one origin.
type Server struct {
	options  Options
	pages    *pages
	sessions *sessions
	// signIn is in place of sessions where users sign in.
	signIn *signIn
	key    proofKey
	ctx    context.Context
	// callers are the connections that no session uses at the moment.
	callers greeting.Rooms

	mu    sync.Mutex
	ended bool
	// handlers serve requests.
	handlers sync.WaitGroup
}

// New returns a server whose sessions and streams end with ctx.
func New(ctx context.Context, o Options) (*Server, error) {
	if err := checkOrigin(o.Origin, o.SignIn != nil); err != nil {
		return nil, err
	}
	read, err := readPages(o.Pages)
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, pages: read, sessions: newSessions(ctx, time.Now), key: newProofKey(), ctx: ctx, callers: greeting.Rooms{Size: maxStrangers}}
	if o.SignIn != nil {
		if s.signIn, err = newSignIn(s, o.SignIn.Key); err != nil {
			return nil, fmt.Errorf("starting the web console: %w", err)
		}
	}
	return s, nil
}

// checkOrigin refuses an origin that no browser sends.
func checkOrigin(origin string, overTLS bool) error {
	scheme, usual := "http", ":80"
	if overTLS {
		scheme, usual = "https", ":443"
	}
	host, found := strings.CutPrefix(origin, scheme+"://")
	if !found || host == "" || strings.ContainsAny(host, "/?#@* ") || host != strings.ToLower(host) || strings.HasSuffix(host, usual) {
		return fmt.Errorf("starting the web console: %q is no origin: write it as browsers do, %s://NAME, with the port if it is another than %s, and nothing after it", origin, scheme, usual[1:])
	}
	return nil
}

// ErrTooManyCodes means that a server has given out as many codes as it may.
var ErrTooManyCodes = errors.New("the web console has given out too many addresses: start it again")

// Address returns the address of a new session, which is good once. Its code is in the fragment, which browsers send to
// nobody.
func (s *Server) Address() (string, error) {
	code, ok := s.sessions.newCode()
	if !ok {
		return "", ErrTooManyCodes
	}
	return s.options.Origin + "/#code=" + code, nil
}

// Serve serves on all listeners until the server's context ends, then closes all connections at once: a browser would
// keep them.
func (s *Server) Serve(listeners ...net.Listener) error {
	server := &http.Server{
		Handler: s, BaseContext: func(net.Listener) context.Context { return s.ctx },
		ReadTimeout: patience, WriteTimeout: 2 * patience, IdleTimeout: patience,
		DisableGeneralOptionsHandler: true, // it would answer before the guard
	}
	s.callers.Bound(server)
	if s.signIn != nil {
		// The errors of strangers' handshakes would fill the log.
		server.ErrorLog = log.New(io.Discard, "", 0)
	}
	stop := context.AfterFunc(s.ctx, func() { _ = server.Close() })
	defer stop()
	served := make(chan error, len(listeners))
	for _, listener := range listeners {
		go func() { served <- server.Serve(s.secured(listener)) }()
	}
	var first error
	for range listeners {
		first = cmp.Or(first, <-served)
		_ = server.Close() // one that ends, ends all
	}
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.handlers.Wait()
	if s.ctx.Err() != nil || errors.Is(first, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving the web console: %w", first)
}

// secured speaks TLS where users sign in.
func (s *Server) secured(listener net.Listener) net.Listener {
	if s.signIn == nil {
		return listener
	}
	return tls.NewListener(listener, &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: s.options.SignIn.Certificate, NextProtos: []string{"http/1.1"},
	})
}

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler)
	}
	defer s.handlers.Done()
	protect(w.Header())
	if s.signIn != nil {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		if r.RequestURI == healthPath {
			_, _ = io.WriteString(w, "ok\n") // a prober that is gone asks again
			return
		}
	}
	err := checkFields(r.Header)
	if err == nil {
		err = s.serve(w, r)
	}
	if err != nil {
		// What is left of a refused request is not read.
		w.Header().Set("Connection", "close")
		answer.Error(w, err)
	}
}

// checkFields refuses a header of too many lines.
func checkFields(header http.Header) error {
	lines := 0
	for _, values := range header {
		lines += len(values)
	}
	if lines > maxFields {
		return refusal(http.StatusRequestHeaderFieldsTooLarge, metav1.StatusReasonBadRequest, "the request has more than %d lines in its header", maxFields)
	}
	return nil
}

// enter counts a handler, unless the server has ended.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.handlers.Add(1)
	}
	return !s.ended
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	if err := guard(r, s.options.Origin); err != nil {
		return err
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if s.signIn != nil && r.Method == http.MethodGet {
		if is, err := s.signIn.serve(w, r, path); is {
			return err
		}
	}
	switch {
	case path == sessionPath:
		return s.serveSession(w, r)
	case path == proofPath && s.signIn == nil && r.Method == http.MethodGet:
		return s.prove(w, r)
	case path == "/" && r.Method == http.MethodGet:
		return s.pages.serveIndex(w, s.options.Origin)
	case strings.HasPrefix(path, assetsFolder) && r.Method == http.MethodGet:
		return s.pages.serveAsset(w, strings.TrimPrefix(path, assetsFolder))
	}
	return s.pass(w, r)
}

const sessionPath = "/session"

// sessionHeader has the session's secret.
const sessionHeader = "X-Drydock-Session"

const cookieName = "drydock-web"

func (s *Server) serveSession(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodPost {
		return s.begin(w, r)
	}
	upgrade, err := wantsUpgrade(r.Header)
	if err != nil {
		return err
	}
	if upgrade {
		return s.live(w, r)
	}
	if r.Method == http.MethodPut && s.signIn != nil {
		return s.signIn.renew(w, r)
	}
	one, err := s.find(r, r.Header.Get(sessionHeader))
	if err != nil {
		return err
	}
	switch r.Method {
	case http.MethodGet:
	case http.MethodDelete:
		s.remove(w, one)
	default:
		return refusal(http.StatusMethodNotAllowed, "MethodNotAllowed", "a session is begun with POST, looked at with GET, and ended with DELETE")
	}
	if s.signIn != nil {
		return answer.JSON(w, http.StatusOK, one.about)
	}
	return answer.JSON(w, http.StatusOK, s.options.About)
}

func (s *Server) find(r *http.Request, secret string) (*session, error) {
	if s.signIn != nil {
		return s.signIn.find(r, secret)
	}
	return s.sessions.find(cookies(r, cookieName), secret)
}

func (s *Server) remove(w http.ResponseWriter, one *session) {
	if s.signIn != nil {
		s.signIn.remove(w, one)
		return
	}
	s.sessions.remove(one)
}

func (s *Server) begin(w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get("Content-Type") != string(jsonAnswer) {
		return malformed("beginning a session: write Content-Type: application/json")
	}
	body, err := readBody(w, r, maxExchange)
	if err != nil {
		return err
	}
	if s.signIn != nil {
		return s.signIn.begin(w, r, body)
	}
	var given struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal(body, &given); err != nil {
		return malformed("beginning a session: the body is not JSON with a code")
	}
	cookie, secret, err := s.sessions.exchange(given.Code)
	if err != nil {
		return err
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	return answer.JSON(w, http.StatusOK, struct {
		Secret string `json:"secret"`
		Proof  string `json:"proof"`
		About
	}{secret, s.key.String(), s.options.About})
}

func cookies(r *http.Request, name string) []string {
	var values []string
	for _, c := range r.Cookies() {
		if c.Name == name {
			values = append(values, c.Value)
		}
	}
	return values
}

func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, refusal(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "the request is larger than %d bytes", limit)
	case err != nil:
		return nil, malformed("the request can't be read: %v", err)
	}
	return body, nil
}
