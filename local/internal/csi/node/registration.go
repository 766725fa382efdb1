package node

import (
	"context"
	"fmt"
	"os"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"drydock.dev/local/internal/csi"
)

// Registrar tells the kubelet, which watches a folder for sockets, that the
// driver is there and where.
type Registrar struct {
	registration.UnimplementedRegistrationServer
	// Endpoint is the socket of the node service.
	Endpoint string
}

// GetInfo answers the kubelet's question what has appeared.
func (r Registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: csi.Driver, Endpoint: r.Endpoint,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus hears how it went. The kubelet tries again by itself.
func (r Registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		fmt.Fprintf(os.Stderr, "the kubelet did not register the driver: %s\n", s.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}
