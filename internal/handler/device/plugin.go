// Package device offers a node's devices to the kubelet, so that launcher pods get them without privileges: /dev/kvm,
// /dev/net/tun and /dev/vhost-net as devices.kubevirt.io/kvm, tun and vhost-net, and PCI devices as the resources that
// the KubeVirt object permits.
//
// It owns the device plugins and their registration after each start of the kubelet. It must not decide whether KVM is
// usable (the node's probe does), or which PCI device is offered (package hostdevice).
package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
)

const (
	kubeletSocket = "kubelet.sock"
	// registerTimeout is for one attempt to register, retryDelay the pause after a failed one: the kubelet's socket
	// appears before it answers.
	registerTimeout = 5 * time.Second
	retryDelay      = time.Second
)

// source has the devices of a resource.
type source interface {
	// devices returns them all, and a channel that is closed when they have changed.
	devices() ([]*v1beta1.Device, <-chan struct{})
	// allocate returns the answer for a container.
	allocate(ids []string) (*v1beta1.ContainerAllocateResponse, error)
}

// Plugin offers one resource.
type Plugin struct {
	name   string
	source source
	dir    string
	log    logr.Logger
}

// NewPlugin returns the plugin of a resource. dir is the kubelet's folder of device plugins.
func NewPlugin(resource Resource, dir string, log logr.Logger) *Plugin {
	return newPlugin(resource.Name, resource, dir, log)
}

func newPlugin(name string, from source, dir string, log logr.Logger) *Plugin {
	return &Plugin{name: name, source: from, dir: dir, log: log.WithValues("resource", name)}
}

// socket has one length for all names, since the kernel takes no path of more than 107 bytes, and differs for a/b-c and
// a-b/c.
func (p *Plugin) socket() string {
	return "drydock-" + layout.HexDigest(p.name, 16) + ".sock"
}

// Run serves the kubelet until ctx ends. A starting kubelet removes the plugins' sockets and forgets the plugins, so
// the plugin starts again.
func (p *Plugin) Run(ctx context.Context) error {
	changes, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("opening inotify: %w", err)
	}
	defer func() { _ = changes.Close() }() // nothing can be lost
	if err := changes.Add(p.dir); err != nil {
		return fmt.Errorf("watching the kubelet's folder %s: %w", p.dir, err)
	}
	for ctx.Err() == nil {
		if err := p.serveOnce(ctx, changes); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plugin) serveOnce(ctx context.Context, changes *fsnotify.Watcher) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	own := filepath.Join(p.dir, p.socket())
	if err := os.Remove(own); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the socket of an earlier plugin: %w", err)
	}
	listener, err := net.Listen("unix", own)
	if err != nil {
		return fmt.Errorf("listening for the kubelet: %w", err)
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, &service{source: p.source, ended: ctx})
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); err != nil {
			p.log.Error(err, "serving the kubelet has ended")
		}
	})
	defer serving.Wait()
	defer server.Stop()
	defer cancel() // ends ListAndWatch
	for ctx.Err() == nil {
		before, err := os.Stat(filepath.Join(p.dir, kubeletSocket))
		if err == nil && p.removed() {
			// The kubelet removed the socket before it listened, and could not call back.
			return nil
		}
		if err == nil {
			err = p.register(ctx)
		}
		if err == nil {
			p.log.Info("offered to the kubelet")
			return p.awaitRestart(ctx, changes, before)
		}
		p.log.V(1).Info("the kubelet does not take the plugin yet", "reason", err.Error())
		if err := p.pause(ctx, changes); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plugin) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+filepath.Join(p.dir, kubeletSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connecting to the kubelet: %w", err)
	}
	defer func() { _ = conn.Close() }() // the answer is complete
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: p.socket(), ResourceName: p.name,
		Options: &v1beta1.DevicePluginOptions{},
	})
	if err != nil {
		return fmt.Errorf("registering with the kubelet: %w", err)
	}
	return nil
}

func (p *Plugin) pause(ctx context.Context, changes *fsnotify.Watcher) error {
	timer := time.NewTimer(retryDelay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil
	case err := <-changes.Errors:
		return fmt.Errorf("watching the kubelet's folder: %w", err)
	case <-changes.Events:
	case <-timer.C:
	}
	return nil
}

// awaitRestart returns when the kubelet has another socket, or the plugin's is gone.
func (p *Plugin) awaitRestart(ctx context.Context, changes *fsnotify.Watcher, before os.FileInfo) error {
	for {
		now, err := os.Stat(filepath.Join(p.dir, kubeletSocket))
		if err == nil && !os.SameFile(before, now) {
			p.log.Info("the kubelet has started anew")
			return nil
		}
		if p.removed() {
			p.log.Info("the kubelet has removed the plugin's socket")
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-changes.Errors:
			return fmt.Errorf("watching the kubelet's folder: %w", err)
		case <-changes.Events:
		}
	}
}

func (p *Plugin) removed() bool {
	_, err := os.Stat(filepath.Join(p.dir, p.socket()))
	return errors.Is(err, os.ErrNotExist)
}

type service struct {
	v1beta1.UnimplementedDevicePluginServer
	source source
	ended  context.Context
}

// GetDevicePluginOptions returns no options.
func (s *service) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

// ListAndWatch sends the devices, and again whenever they have changed.
func (s *service) ListAndWatch(_ *v1beta1.Empty, stream v1beta1.DevicePlugin_ListAndWatchServer) error {
	for {
		devices, changed := s.source.devices()
		if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-s.ended.Done():
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Allocate returns the device nodes of each container.
func (s *service) Allocate(_ context.Context, request *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	response := &v1beta1.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		answer, err := s.source.allocate(container.DevicesIds)
		if err != nil {
			return nil, err
		}
		response.ContainerResponses = append(response.ContainerResponses, answer)
	}
	return response, nil
}

// give adds a device node of the same path to a container.
func give(to *v1beta1.ContainerAllocateResponse, path string) {
	to.Devices = append(to.Devices, &v1beta1.DeviceSpec{ContainerPath: path, HostPath: path, Permissions: "rw"})
}
