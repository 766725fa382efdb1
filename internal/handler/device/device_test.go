package device

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// kubelet is the registration service of a kubelet's device manager: at its start it removes all sockets in the folder.
type kubelet struct {
	v1beta1.UnimplementedRegistrationServer
	server     *grpc.Server
	registered chan *v1beta1.RegisterRequest
}

func (k *kubelet) Register(_ context.Context, r *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	k.registered <- r
	return &v1beta1.Empty{}, nil
}

func startKubelet(t *testing.T, dir string) *kubelet {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("unix", filepath.Join(dir, kubeletSocket))
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{server: grpc.NewServer(), registered: make(chan *v1beta1.RegisterRequest, 10)}
	v1beta1.RegisterRegistrationServer(k.server, k)
	go func() { _ = k.server.Serve(listener) }()
	t.Cleanup(k.server.Stop)
	return k
}

func (k *kubelet) await(t *testing.T) *v1beta1.RegisterRequest {
	t.Helper()
	select {
	case r := <-k.registered:
		return r
	case <-time.After(2 * time.Minute):
		t.Fatal("nobody registered")
		return nil
	}
}

func TestRegistersWithEveryKubelet(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	resource := Resource{Name: layout.ResourceKVM, Count: 3, Nodes: func() []string { return []string{layout.KVMDevice} }}
	ended := make(chan error, 1)
	go func() { ended <- NewPlugin(resource, dir, testr.New(t)).Run(ctx) }()

	first := startKubelet(t, dir)
	request := first.await(t)
	if request.ResourceName != resource.Name || request.Version != "v1beta1" {
		t.Errorf("registered: %v", request)
	}
	checkPlugin(t, filepath.Join(dir, request.Endpoint))

	first.server.Stop()
	second := startKubelet(t, dir)
	checkPlugin(t, filepath.Join(dir, second.await(t).Endpoint))

	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestASocketIsThatOfOneResource(t *testing.T) {
	const kernels = 107 // bytes of a socket's path
	seen := map[string]string{}
	for _, name := range []string{"a/b-c", "a-b/c", "a.b/c", "a.b/C", layout.ResourceKVM, strings.Repeat("a", 63) + ".example.com/" + strings.Repeat("b", 63)} {
		socket := (&Plugin{name: name}).socket()
		if other, taken := seen[socket]; taken {
			t.Errorf("%s and %s have one socket", name, other)
		}
		seen[socket] = name
		if n := len("/var/lib/kubelet/device-plugins/" + socket); n > kernels || strings.Contains(socket, "/") {
			t.Errorf("%s: the socket %s has a path of %d bytes", name, socket, n)
		}
	}
}

func checkPlugin(t *testing.T, socket string) {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	plugin := v1beta1.NewDevicePluginClient(conn)
	stream, err := plugin.ListAndWatch(t.Context(), &v1beta1.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Devices) != 3 || list.Devices[0].Health != v1beta1.Healthy {
		t.Errorf("devices: %v", list.Devices)
	}
	given, err := plugin.Allocate(t.Context(), &v1beta1.AllocateRequest{
		ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: []string{"1"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	devices := given.ContainerResponses[0].Devices
	if len(devices) != 1 || devices[0].HostPath != layout.KVMDevice || devices[0].ContainerPath != layout.KVMDevice {
		t.Errorf("allocated: %v", devices)
	}
}

func TestResources(t *testing.T) {
	all := []string{layout.KVMDevice, layout.TUNDevice, layout.VhostNetDevice}
	for name, tc := range map[string]struct {
		kvm, emulation bool
		exist          []string
		want           map[string][]string
	}{
		"a node with everything": {kvm: true, exist: all, want: map[string][]string{
			layout.ResourceKVM:      {layout.KVMDevice, layout.VhostNetDevice},
			layout.ResourceTUN:      {layout.TUNDevice},
			layout.ResourceVhostNet: {layout.VhostNetDevice},
		}},
		"a node without vhost-net runs guests, too": {kvm: true, exist: all[:2], want: map[string][]string{
			layout.ResourceKVM: {layout.KVMDevice},
			layout.ResourceTUN: {layout.TUNDevice},
		}},
		"emulation allowed where everything is usable": {kvm: true, emulation: true, exist: all, want: map[string][]string{
			layout.ResourceKVM:      {layout.KVMDevice, layout.VhostNetDevice},
			layout.ResourceTUN:      {layout.TUNDevice, layout.KVMDevice, layout.VhostNetDevice},
			layout.ResourceVhostNet: {layout.VhostNetDevice},
		}},
		"emulation allowed where KVM is usable": {kvm: true, emulation: true, exist: all[:2], want: map[string][]string{
			layout.ResourceKVM: {layout.KVMDevice},
			layout.ResourceTUN: {layout.TUNDevice, layout.KVMDevice},
		}},
		"a KVM that exists and does not work": {emulation: true, exist: all[:2], want: map[string][]string{
			layout.ResourceTUN: {layout.TUNDevice},
		}},
		"nothing": {want: map[string][]string{}},
	} {
		got := map[string][]string{}
		for _, r := range Resources(Facts{
			KVM: tc.kvm, Emulation: func() bool { return tc.emulation },
			Exists: func(path string) bool {
				for _, have := range tc.exist {
					if have == path {
						return true
					}
				}
				return false
			},
		}) {
			got[r.Name] = r.Nodes()
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
