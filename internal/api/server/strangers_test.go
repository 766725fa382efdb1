package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// counted counts a client's connections.
type counted struct {
	*http.Client
	dialed int
}

func caller(from string, config *tls.Config) *counted {
	c := &counted{}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c.Client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: config, DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			c.dialed++
			return dialer.DialContext(ctx, network, to)
		},
	}}
	return c
}

// pair returns a certificate that is signed by an authority, or an authority without one.
func pair(t *testing.T, name string, by *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true, IsCA: by == nil,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// verifying trusts one authority.
type verifying struct {
	dynamiccertificates.CAContentProvider
	roots *x509.CertPool
}

func (v verifying) VerifyOptions() (x509.VerifyOptions, bool) {
	return x509.VerifyOptions{Roots: v.roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

// front is kube-apiserver's authority, and a server that knows it.
type front struct {
	authority *tls.Certificate
	callers   *strangers
	server    *httptest.Server
}

// serve serves as SecureServingInfo does: with a limit of 1 MiB for headers.
func serve(t *testing.T) *front {
	t.Helper()
	f := &front{authority: pair(t, "front-proxy-ca", nil)}
	roots := x509.NewCertPool()
	roots.AddCert(f.authority.Leaf)
	f.server = httptest.NewUnstartedServer(nil)
	f.callers = newStrangers(f.server.Listener)
	f.callers.known = frontProxy(&authenticatorfactory.RequestHeaderConfig{
		CAContentProvider: verifying{roots: roots}, AllowedClientNames: headerrequest.StaticStringSlice{"front-proxy-client"},
	})
	f.server.Listener = f.callers
	f.server.Config = &http.Server{ErrorLog: log.New(io.Discard, "", 0), MaxHeaderBytes: 1 << 20, ReadHeaderTimeout: time.Minute, Handler: f.callers.guard(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprint(w, n, " ", err)
		}))}
	f.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert}
	f.server.StartTLS()
	t.Cleanup(f.server.Close)
	return f
}

// client has a certificate, or none.
func (f *front) client(from string, shows *tls.Certificate) *counted {
	roots := x509.NewCertPool()
	roots.AddCert(f.server.Certificate())
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: "example.com"}
	if shows != nil {
		config.Certificates = []tls.Certificate{*shows}
	}
	return caller(from, config)
}

func (f *front) send(t *testing.T, c *counted, header, body int) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, f.server.URL, strings.NewReader(strings.Repeat("b", body)))
	must(t, err)
	request.Header.Set("A", strings.Repeat("a", header))
	response, err := c.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// Headers take many times their size, and any pod can send some.
func TestHeadersOfStrangersAreBounded(t *testing.T) {
	f := serve(t)
	for name, c := range map[string]*counted{
		"nobody":         f.client("127.0.0.2", nil),
		"a certificate":  f.client("127.0.0.2", pair(t, "front-proxy-client", nil)),
		"another's name": f.client("127.0.0.2", pair(t, "tenant", f.authority)),
	} {
		for i := range 2 {
			if text, err := f.send(t, c, 30<<10, 1<<20); err != nil || text != "1048576 <nil>" {
				t.Errorf("%s: a request with a body is answered %q, %v", name, text, err)
			}
			if c.dialed != i+1 {
				t.Errorf("%s: %d requests took %d connections, and a second request's header is not bounded", name, i+1, c.dialed)
			}
		}
		if text, err := f.send(t, c, 2*maxGreeting, 0); err == nil && text != "400 Bad Request" {
			t.Errorf("%s: headers of %d bytes are answered %q", name, 2*maxGreeting, text)
		}
		c.CloseIdleConnections()
	}
	known := f.client("127.0.0.1", pair(t, "front-proxy-client", f.authority))
	defer known.CloseIdleConnections()
	for _, header := range []int{1, 2 * maxGreeting} {
		if text, err := f.send(t, known, header, 1<<20); err != nil || text != "1048576 <nil>" || known.dialed != 1 {
			t.Errorf("kube-apiserver's request with %d bytes of headers is answered %q, %v, after %d connections", header, text, err, known.dialed)
		}
	}
}

// A flood of strangers must displace its own connections, and none of kube-apiserver.
func TestConnectionsToVirtAPIAreBounded(t *testing.T) {
	f := serve(t)
	known := f.client("127.0.0.1", pair(t, "front-proxy-client", f.authority))
	defer known.CloseIdleConnections()
	send := func(when string) {
		t.Helper()
		if text, err := f.send(t, known, 1, 1); err != nil || text != "1 <nil>" || known.dialed != 1 {
			t.Errorf("%s: kube-apiserver is answered %q, %v, after %d connections", when, text, err, known.dialed)
		}
	}
	send("before the flood")
	stranger := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	var flood []net.Conn
	for range 2 * strangerRoom {
		conn, err := stranger.DialContext(t.Context(), "tcp", f.server.Listener.Addr().String())
		must(t, err)
		defer conn.Close()
		flood = append(flood, conn)
	}
	for i, conn := range flood[:strangerRoom] {
		must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		var deadline net.Error
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.As(err, &deadline) && deadline.Timeout() {
			t.Fatalf("connection %d of a stranger is held: %v", i, err)
		}
	}
	send("during the flood")
}
