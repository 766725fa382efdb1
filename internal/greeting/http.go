package greeting

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// HeaderTimeout bounds the handshake and the arrival of a request's headers.
	HeaderTimeout = 10 * time.Second
	// MaxHeader is in bytes; any token fits. Short lines take some twenty times their size.
	MaxHeader = 16 << 10
)

type callerKey struct{}

// WithCaller returns a context for requests on the connection.
func WithCaller(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the connection of a request to a bounded server.
func CallerOf(ctx context.Context) (*Caller, bool) {
	caller, ok := ctx.Value(callerKey{}).(*Caller)
	return caller, ok
}

// Bound limits the connections, headers and time that unknown callers of a server can occupy. There is no HTTP/2: a
// connection has one request at a time.
func (r *Rooms) Bound(server *http.Server) {
	var open sync.Map // of net.Conn: *Caller
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		caller := r.Enter(conn.RemoteAddr(), func() { drop(conn) })
		open.Store(conn, caller)
		return WithCaller(ctx, caller)
	}
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		if state != http.StateClosed && state != http.StateHijacked {
			return
		}
		found, _ := open.LoadAndDelete(conn)
		if caller, ok := found.(*Caller); ok {
			caller.Leave()
		}
	}
	// A limit for the whole request would abort longer responses.
	server.ReadHeaderTimeout, server.MaxHeaderBytes = HeaderTimeout, MaxHeader
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
}

// drop closes a connection without a TLS alert, which would wait until the peer has read all data.
func drop(conn net.Conn) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	_ = conn.Close()
}
