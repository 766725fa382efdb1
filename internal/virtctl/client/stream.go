package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/keepalive"
)

const (
	// Load balancers commonly close connections after 60 s of silence.
	pingPeriod = 30 * time.Second
	// closeTimeout bounds the write of the close message.
	closeTimeout = 2 * time.Second
)

// Stream opens a subresource's stream, such as "portforward/22/tcp".
func (c *Client) Stream(ctx context.Context, ref Ref, verb string) (net.Conn, error) {
	target, err := c.streamURL(subresource(ref, verb))
	if err != nil {
		return nil, err
	}
	conn, err := c.upgrade(ctx, target, nodeapi.StreamProtocol)
	if err != nil {
		return nil, err
	}
	return newStream(conn), nil
}

func (c *Client) upgrade(ctx context.Context, target *url.URL, protocol string) (*websocket.Conn, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("making the request for %s: %w", target.Path, err)
	}
	dialer, err := c.dialer(protocol)
	if err != nil {
		return nil, err
	}
	upgrade := &upgrader{dialer: dialer}
	// The wrappers add the user's authentication: tokens, exec plugins, impersonation.
	wrapped, err := rest.HTTPWrappersForConfig(c.config, upgrade)
	if err != nil {
		return nil, fmt.Errorf("preparing authentication: %w", err)
	}
	response, err := wrapped.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.Body != nil {
		_ = response.Body.Close()
	}
	return upgrade.conn, nil
}

func (c *Client) streamURL(elements []string) (*url.URL, error) {
	base, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	target := *base
	target.Scheme = strings.Replace(base.Scheme, "http", "ws", 1)
	target.Path = path.Join(append([]string{base.Path}, elements...)...)
	return &target, nil
}

func (c *Client) dialer(protocol string) (*websocket.Dialer, error) {
	tlsConfig, err := rest.TLSConfigFor(c.config)
	if err != nil {
		return nil, fmt.Errorf("preparing TLS: %w", err)
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	// A WebSocket needs HTTP/1.1; the TLS settings may offer h2.
	tlsConfig = tlsConfig.Clone()
	tlsConfig.NextProtos = []string{"http/1.1"}
	proxy := http.ProxyFromEnvironment
	if c.config.Proxy != nil {
		proxy = c.config.Proxy
	}
	return &websocket.Dialer{
		Proxy:            proxy,
		NetDialContext:   c.config.Dial,
		TLSClientConfig:  tlsConfig,
		Subprotocols:     []string{protocol},
		HandshakeTimeout: 30 * time.Second,
	}, nil
}

type upgrader struct {
	dialer *websocket.Dialer
	conn   *websocket.Conn
}

func (u *upgrader) RoundTrip(request *http.Request) (*http.Response, error) {
	conn, response, err := u.dialer.DialContext(request.Context(), request.URL.String(), request.Header)
	if err != nil {
		if response == nil {
			return nil, fmt.Errorf("connecting to %s: %w", request.URL.Host, err)
		}
		body, _ := io.ReadAll(response.Body) // gorilla returns the body's beginning; an error only shortens it
		_ = response.Body.Close()
		var status metav1.Status
		if err := json.Unmarshal(body, &status); err == nil && status.Message != "" {
			return nil, apierrors.FromObject(&status)
		}
		message := strings.TrimSpace(string(bytes.ToValidUTF8(body, nil)))
		kind := schema.GroupResource{Group: v1.SubresourceGroupName}
		return nil, apierrors.NewGenericServerResponse(response.StatusCode, "connect", kind, "", message, 0, true)
	}
	u.conn = conn
	return response, nil
}

// stream is a WebSocket as a net.Conn. Each Write is one binary message, which preserves the boundaries of
// datagrams.
type stream struct {
	*websocket.Conn
	message io.Reader
	writing sync.Mutex
	closing sync.Once
	closed  chan struct{}
}

func newStream(conn *websocket.Conn) *stream {
	s := &stream{Conn: conn, closed: make(chan struct{})}
	go keepalive.New(conn).Run(s.closed, pingPeriod)
	return s
}

// Read returns io.EOF after a proper close.
func (s *stream) Read(p []byte) (int, error) {
	for {
		if s.message == nil {
			_, message, err := s.NextReader()
			if err != nil {
				return 0, endOfStream(err)
			}
			s.message = message
		}
		n, err := s.message.Read(p)
		if errors.Is(err, io.EOF) {
			s.message, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func endOfStream(err error) error {
	if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway) {
		return io.EOF
	}
	return err
}

func (s *stream) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close sends a close message, so that the server does not report a broken connection.
func (s *stream) Close() error {
	err := net.ErrClosed
	s.closing.Do(func() {
		close(s.closed)
		goodbye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
		_ = s.WriteControl(websocket.CloseMessage, goodbye, time.Now().Add(closeTimeout)) // the connection may be broken
		err = s.Conn.Close()
	})
	return err
}

func (s *stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}
