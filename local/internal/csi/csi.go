// Package csi is shared by both services of the CSI driver: its name, the identity service, and serving on a socket.
// It must not have the driver's behavior, which is in the packages below it and in internal/volume.
package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// Driver is the driver's name.
	Driver = "local.csi.drydock.dev"
	// Topology is the label with the node whose disk holds a volume.
	Topology = "topology." + Driver + "/node"
	version  = "1"
)

// Parameters of a StorageClass.
const (
	// Scope selects the nodes that can reach a volume: one, or all.
	Scope = "scope"
	// ScopeNode is the node's own disk.
	ScopeNode   = "node"
	ScopeShared = "shared"
)

// Identity is the driver's identity service.
type Identity struct {
	csi.UnimplementedIdentityServer
}

// GetPluginInfo returns the driver's name.
func (Identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: Driver, VendorVersion: version}, nil
}

// GetPluginCapabilities includes topology and online expansion.
func (Identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := func(t csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}}
	}
	online := &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: online}},
	}}, nil
}

// Probe always succeeds.
func (Identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// Listen makes a Unix socket for root, in place of an earlier process's.
func Listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of %s: %w", socket, err)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing the socket of an earlier process: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("closing %s to others: %w", socket, err), listener.Close())
	}
	return listener, nil
}

// Serve serves on a Unix socket until the context ends.
func Serve(ctx context.Context, socket string, register func(*grpc.Server)) error {
	listener, err := Listen(socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(logFailure))
	register(server)
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving on %s: %w", socket, err)
	}
	return nil
}

func logFailure(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	response, err := handle(ctx, request)
	if err != nil && status.Code(err) != codes.Unimplemented {
		fmt.Fprintf(os.Stderr, "%s: %v\n", info.FullMethod, err)
	}
	return response, err
}

// Locks excludes conflicting calls on a volume. A second caller gets Aborted, which CSI defines as retryable.
type Locks struct {
	mu sync.Mutex
	// held counts the readers of a name; -1 is a writer.
	held map[string]int
}

// Lock locks a name for writing and, if not empty, another for reading: many copies of one source
// may be made at once.
func (l *Locks) Lock(write, read string) (unlock func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[string]int{}
	}
	if l.held[write] != 0 {
		return nil, busy(write)
	}
	if read != "" && l.held[read] < 0 {
		return nil, busy(read)
	}
	l.held[write] = -1
	if read != "" {
		l.held[read]++
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, write)
		if read == "" {
			return
		}
		if l.held[read]--; l.held[read] == 0 {
			delete(l.held, read)
		}
	}, nil
}

func busy(name string) error {
	return status.Errorf(codes.Aborted, "another call is at work on %s; try again", name)
}
