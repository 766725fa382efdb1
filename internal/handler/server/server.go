// Package server is virt-handler's HTTP interface to virt-api: the verbs of internal/contracts/nodeapi on the VMIs
// that run on this node, and the streams to their consoles, screens and ports.
//
// It owns routes, answers and the encoding of errors (metav1.Status). The Machine implements the verbs; the package
// must not know QEMU or the API server. The TLS configuration admits virt-api's certificate and no other.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/handler/stream"
)

// Machine is one running VMI. Its errors reach the user unchanged: one with a metav1.Status keeps its code, any other
// is an internal error.
type Machine interface {
	Pause(ctx context.Context) error
	Unpause(ctx context.Context) error
	// SoftReboot asks the guest to reboot, through the guest agent if it answers and by ACPI otherwise.
	SoftReboot(ctx context.Context) error
	Reset(ctx context.Context) error

	// Quiesce holds the guest still, Held returns its hold, Release ends the hold.
	Quiesce(ctx context.Context, q launch.Quiesce) (launch.Hold, error)
	Held(ctx context.Context, asked launch.Held) (launch.Hold, error)
	Release(ctx context.Context, r launch.Release) (launch.Hold, error)

	GuestOSInfo(ctx context.Context) (v1.VirtualMachineInstanceGuestAgentInfo, error)
	UserList(ctx context.Context) (v1.VirtualMachineInstanceGuestOSUserList, error)
	FilesystemList(ctx context.Context) (v1.VirtualMachineInstanceFileSystemList, error)

	// ConsoleKey identifies the running guest: another start of the same VMI has another key.
	ConsoleKey() string
	DialSerial(ctx context.Context) (net.Conn, error)
	DialVNC(ctx context.Context) (net.Conn, error)
	// DialPort connects to a port of the guest. protocol is "tcp" or "udp".
	DialPort(ctx context.Context, protocol string, port int) (net.Conn, error)
}

// Machines finds a VMI that runs on this node. The error for a missing VMI, or another UID, has the status NotFound.
type Machines interface {
	Lookup(namespace, name string, uid types.UID) (Machine, error)
}

// Server answers virt-api.
type Server struct {
	machines Machines
	consoles *stream.Consoles
	tls      *tls.Config
	log      logr.Logger
	streams  streams
	callers  callers
	pictures chan struct{}
}

// New returns a Server. tlsConfig must require and verify virt-api's client certificate. The caller must close
// consoles after Run has returned.
func New(machines Machines, consoles *stream.Consoles, tlsConfig *tls.Config, log logr.Logger) *Server {
	return &Server{machines: machines, consoles: consoles, tls: tlsConfig, log: log, pictures: make(chan struct{}, 1)}
}

const (
	headerTimeout = 10 * time.Second
	// endTimeout limits the wait for verbs in progress when virt-handler ends; streams are cut.
	endTimeout = 5 * time.Second
)

// Run serves addr until ctx ends.
func (s *Server) Run(ctx context.Context, addr string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listening on %s for virt-api: %w", addr, err)
	}
	return s.Serve(ctx, listener)
}

// Serve is Run on a listener, which it closes.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	config := s.tls.Clone()
	// A WebSocket starts as an HTTP/1.1 request.
	config.NextProtos = []string{"http/1.1"}
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: headerTimeout,
		ConnState:         s.callers.state,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(logr.ToSlogHandler(s.log), slog.LevelInfo),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(tls.NewListener(listener, config)) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving virt-api on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return errors.Join(fmt.Errorf("ending the service of virt-api: %w", err), server.Close())
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving virt-api on %s: %w", listener.Addr(), err)
	}
	return nil
}
