package node

import (
	"context"
	"fmt"
	"os"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"drydock.dev/local/internal/csi"
)

// Registrar registers the driver with the kubelet, which finds its socket.
type Registrar struct {
	registration.UnimplementedRegistrationServer
	Endpoint string
}

// GetInfo returns the driver's name and endpoint.
func (r Registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: csi.Driver, Endpoint: r.Endpoint,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus logs a failure, which the kubelet retries.
func (r Registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		fmt.Fprintf(os.Stderr, "the kubelet did not register the driver: %s\n", s.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}
