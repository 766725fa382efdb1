package server

import (
	"crypto/x509"
	"errors"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"

	"drydock.dev/drydock/internal/greeting"
)

const (
	// strangerRoom bounds the connections of callers that are not kube-apiserver, and separately those of hosts from
	// which kube-apiserver has called: it has room for new ones at a busy moment.
	strangerRoom = 128
	// maxGreeting bounds an unproven connection's handshake and headers, in bytes. The server itself allows 1 MiB, and
	// short lines take some twenty times their size.
	maxGreeting = 64 << 10
)

var errLongGreeting = errors.New("the caller has sent too much before a request")

// strangers is a listener that bounds the connections and headers of callers other than kube-apiserver: any pod may reach
// virt-api's port. Its guard must handle all requests.
type strangers struct {
	net.Listener
	rooms greeting.Rooms
	// known reports whether a certificate chain is kube-apiserver's.
	known func([]*x509.Certificate) bool
	open  sync.Map
}

func newStrangers(listener net.Listener) *strangers {
	return &strangers{Listener: listener, rooms: greeting.Rooms{Size: strangerRoom}, known: func([]*x509.Certificate) bool { return false }}
}

// Accept accepts a stranger.
func (s *strangers) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, of: s}
	c.left.Store(maxGreeting)
	c.caller = s.rooms.Enter(conn.RemoteAddr(), func() { _ = conn.Close() })
	s.open.Store(conn.RemoteAddr().String(), c)
	return c, nil
}

// guard lets the bodies of all requests pass. A connection other than kube-apiserver's ends with its request.
func (s *strangers) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found, _ := s.open.Load(r.RemoteAddr)
		if c, ok := found.(*connection); ok && !c.proven.Load() {
			c.left.Store(math.MaxInt64)
			if r.TLS != nil && s.known(r.TLS.PeerCertificates) {
				c.proven.Store(true)
				c.caller.Proven()
				c.caller.Leave()
			} else {
				w.Header().Set("Connection", "close")
			}
		}
		next.ServeHTTP(w, r)
	})
}

type connection struct {
	net.Conn
	of     *strangers
	caller *greeting.Caller
	proven atomic.Bool
	// left is how many bytes may still be read.
	left atomic.Int64
}

// Read fails after a too long greeting.
func (c *connection) Read(p []byte) (int, error) {
	left := c.left.Load()
	if left <= 0 {
		return 0, errLongGreeting
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), left)])
	c.left.Add(-int64(n))
	return n, err
}

// Close also releases the connection's place.
func (c *connection) Close() error {
	c.of.open.CompareAndDelete(c.RemoteAddr().String(), c)
	c.caller.Leave()
	return c.Conn.Close()
}

// frontProxy returns whether a certificate chain proves kube-apiserver, by the rules of its authenticator.
func frontProxy(config *authenticatorfactory.RequestHeaderConfig) func([]*x509.Certificate) bool {
	return func(chain []*x509.Certificate) bool {
		if config == nil || len(chain) == 0 {
			return false
		}
		options, ok := config.CAContentProvider.VerifyOptions()
		if !ok {
			return false
		}
		options.Intermediates = x509.NewCertPool()
		for _, c := range chain[1:] {
			options.Intermediates.AddCert(c)
		}
		if _, err := chain[0].Verify(options); err != nil {
			return false
		}
		names := config.AllowedClientNames.Value()
		return len(names) == 0 || slices.Contains(names, chain[0].Subject.CommonName)
	}
}
