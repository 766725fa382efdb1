package upload

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/answer"
	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/greeting"
)

// v1alpha1 is for the oldest clients.
var routes = map[string]string{
	"/v1beta1/upload":             transfer.UploadPath,
	"/v1beta1/upload-async":       transfer.UploadAsyncPath,
	"/v1beta1/upload-form":        transfer.UploadFormPath,
	"/v1beta1/upload-form-async":  transfer.UploadFormAsyncPath,
	"/v1alpha1/upload":            transfer.UploadPath,
	"/v1alpha1/upload-async":      transfer.UploadAsyncPath,
	"/v1alpha1/upload-form":       transfer.UploadFormPath,
	"/v1alpha1/upload-form-async": transfer.UploadFormAsyncPath,
}

const patience = 30 * time.Second

// maxHeader bounds the headers of a worker's answer, in bytes. Short lines take some twenty times their size.
const maxHeader = 16 << 10

const (
	// room bounds the connections of strangers, and separately those of hosts that have sent a valid token.
	room        = 64
	idleTimeout = time.Minute
)

// Proxy forwards uploads to workers.
type Proxy struct {
	cluster  client.Client
	keys     *keys
	identity func(server string) *tls.Config
	now      func() time.Time
	patience time.Duration
	turns    turns
}

// NewProxy returns a Proxy. cluster must not use a cache. identity returns the TLS configuration for a worker of that
// name.
func NewProxy(cluster client.Client, identity func(server string) *tls.Config) *Proxy {
	return &Proxy{cluster: cluster, identity: identity, now: time.Now, patience: patience,
		keys: &keys{cluster: cluster, now: time.Now}}
}

// ServeHTTP handles an upload.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, known := routes[r.URL.Path]
	if !known {
		http.Error(w, r.URL.Path+" is no path of the upload proxy", http.StatusNotFound)
		return
	}
	// Any page may send here: only the token admits a request, and no browser adds that by itself.
	w.Header().Set("Access-Control-Allow-Origin", "*")
	switch r.Method {
	case http.MethodOptions:
		w.Header().Set("Access-Control-Allow-Methods", "HEAD, POST, PUT, OPTIONS")
		w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
		w.Header().Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
	case http.MethodHead, http.MethodPost, http.MethodPut:
		if err := p.pass(w, r, path); err != nil {
			refuse(w, err)
		}
	default:
		w.Header().Set("Allow", "HEAD, POST, PUT, OPTIONS")
		http.Error(w, "an image is uploaded by POST or PUT", http.StatusMethodNotAllowed)
	}
}

// refuse answers with plain text: the callers include browsers and curl.
func refuse(w http.ResponseWriter, err error) {
	status := answer.Status(err)
	if status.Code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if status.Code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, status.Message, int(status.Code))
}

func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, path string) error {
	allowed, err := p.allowed(r)
	if err != nil {
		return err
	}
	if caller, bounded := greeting.CallerOf(r.Context()); bounded {
		// An upload makes no room for newcomers.
		caller.Proven()
		caller.Leave()
		defer caller.Return()
	}
	leave, err := p.turns.enter(allowed.claim())
	if err != nil {
		return err
	}
	defer leave()
	if _, err := p.claim(r.Context(), allowed); err != nil {
		return err
	}
	transport := &http.Transport{
		TLSClientConfig:       p.identity(workertls.ServerName(allowed.PVC, allowed.Namespace)),
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		// A tenant's pod may answer. Its time is not limited: the answer follows the image's conversion.
		MaxResponseHeaderBytes: maxHeader,
	}
	defer transport.CloseIdleConnections()
	address, err := p.await(r.Context(), transport, allowed.claim(), path)
	if err != nil {
		return err
	}
	if r.Method != http.MethodHead {
		// No content was sent yet. By now the claim may be in use, or need no upload any more.
		claim, err := p.claim(r.Context(), allowed)
		if err != nil {
			return err
		}
		if err := inUse(r.Context(), p.cluster, claim); err != nil {
			return err
		}
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.URL.Path, pr.Out.URL.RawPath = "https", address, path, ""
			pr.Out.Host = ""
			// The token is for this proxy only.
			pr.Out.Header.Del("Authorization")
			pr.Out.Header.Del("Cookie")
			// A worker could make a stream of it, which nothing bounds.
			pr.Out.Header.Del("Upgrade")
			pr.Out.Header.Del("Connection")
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf("The upload to PVC %s was cut off: %v. Try again.", allowed.claim(), err), http.StatusBadGateway)
		},
	}
	proxy.ServeHTTP(w, r)
	return nil
}

// await returns the address of the claim's worker. Few requests may wait: each reads the pod repeatedly.
func (p *Proxy) await(ctx context.Context, transport http.RoundTripper, claim types.NamespacedName, path string) (string, error) {
	ctx, stop, err := p.turns.wait(ctx, claim.Namespace)
	if err != nil {
		return "", err
	}
	defer stop()
	address, err := (&worker{cluster: p.cluster, claim: claim}).await(ctx, transport, path, p.patience)
	var lost *apierrors.StatusError
	if err != nil && errors.As(context.Cause(ctx), &lost) {
		return "", lost
	}
	return address, err
}

// allowed verifies the token. Text that is no token costs no request to the API server.
func (p *Proxy) allowed(r *http.Request) (grant, error) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") || strings.Count(text, ".") != 2 {
		return grant{}, apierrors.NewUnauthorized("the request has no upload token; it must have the header Authorization: Bearer <token>")
	}
	text = strings.TrimSpace(text)
	claimed, err := parse(text)
	if err != nil {
		return grant{}, apierrors.NewUnauthorized(err.Error())
	}
	ring, err := p.keys.with(r.Context(), claimed.Headers[0].KeyID)
	if err != nil {
		return grant{}, err
	}
	allowed, err := verify(ring, text, p.now())
	if err != nil {
		return grant{}, apierrors.NewUnauthorized(err.Error())
	}
	return allowed, nil
}

// claim reads the token's claim, which must still exist and take an upload.
func (p *Proxy) claim(ctx context.Context, allowed grant) (*corev1.PersistentVolumeClaim, error) {
	claim, err := target(ctx, p.cluster, allowed.claim())
	switch {
	case apierrors.IsNotFound(err) || err == nil && claim.UID != allowed.UID:
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("PVC %s, which the token is for, is gone", allowed.claim()))
	case err != nil:
		return nil, err
	}
	return claim, nil
}

// Serve accepts uploads until ctx ends. Uploads in progress, which may take hours, are then cut off.
func (p *Proxy) Serve(ctx context.Context, listener net.Listener, serving *tls.Config) error {
	server := &http.Server{
		Handler:     p,
		TLSConfig:   serving,
		IdleTimeout: idleTimeout,
		// Requests end with ctx.
		BaseContext: func(net.Listener) context.Context { return ctx },
		// Aborted handshakes must not fill the log.
		ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}
	(&greeting.Rooms{Size: room}).Bound(server)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving uploads: %w", err)
	}
	return nil
}
