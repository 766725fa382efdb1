package runningguest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/connection"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/handler/podpath"
)

type dialer struct{}

func (dialer) Dial(_ context.Context, namespace *os.File, to network.Interface, protocol string, port int) (net.Conn, error) {
	here, there := net.Pipe()
	go func() {
		_, _ = fmt.Fprintln(there, namespace.Name(), to.Name, protocol, port)
		_ = there.Close()
	}()
	return here, nil
}

// If a guest has addresses on secondary networks only, virt-handler connects to none of its ports.
func TestPortsAreReachedOnThePodsNetworkOnly(t *testing.T) {
	t.Parallel()
	red := network.Interface{Name: "red", IPs: []string{"169.254.169.254"}}
	own := network.Interface{Name: "default", IPs: []string{"10.244.9.5"}, Way: network.InPod}
	if got := reachedInterface([]network.Interface{red, own}); got.Name != "default" {
		t.Errorf("with a network beside the pods' it is reached by %q", got.Name)
	}
	m := &Guest{VMI: &v1.VirtualMachineInstance{}, Network: dialer{}, Interfaces: []network.Interface{red}}
	if _, err := m.DialPort(t.Context(), "tcp", 80); !apierrors.IsConflict(err) {
		t.Errorf("without the pods' network: %v", err)
	}

	namespace, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	m.Link, m.Interfaces = &connection.Link{Peer: &podpath.Peer{NetNS: namespace}}, []network.Interface{red, own}
	conn, err := m.DialPort(t.Context(), "tcp", 22)
	if err != nil {
		t.Fatal(err)
	}
	if asked, err := io.ReadAll(conn); string(asked) != os.DevNull+" default tcp 22\n" {
		t.Errorf("the port is dialed as %q (error: %v)", asked, err)
	}
}
