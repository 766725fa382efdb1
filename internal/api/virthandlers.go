package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/cluster/nodecert"
)

// handlers finds virt-handlers in the cache.
type handlers struct{ pods client.Reader }

const dialTimeout = 5 * time.Second

// Dial connects to the virt-handler that the address names by nodecert.DNSName.
func (h *handlers) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("reading the address of a virt-handler: %w", err)
	}
	node, ok := nodecert.NodeOf(host)
	if !ok {
		return nil, fmt.Errorf("%s is no name of a virt-handler", host)
	}
	ip, err := h.address(ctx, node)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, net.JoinHostPort(ip, port))
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("it takes no connections; it is starting, or waits for its certificate, "+
			"see its log and the CertificateSigningRequest %s: %w", nodecert.RequestName(node), err)
	}
	return conn, err
}

func (h *handlers) address(ctx context.Context, node string) (string, error) {
	pods := &corev1.PodList{}
	err := h.pods.List(ctx, pods, client.InNamespace(clusterconfig.Namespace),
		client.MatchingLabels{v1.AppLabel: "virt-handler"})
	if err != nil {
		return "", fmt.Errorf("finding its pod: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName == node && pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning &&
			pod.DeletionTimestamp == nil {
			return pod.Status.PodIP, nil
		}
	}
	return "", errors.New("none runs there")
}
