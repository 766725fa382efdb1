package device

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

const cards = "example.test/card"

// machine is a folder with the parts of a node's /sys and /dev that are read.
type machine struct {
	t    *testing.T
	root string
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, root: t.TempDir()}
	for _, dir := range []string{"sys/bus/pci/devices", "dev/vfio", "sys/iommu"} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *machine) sys() fs.FS { return os.DirFS(filepath.Join(m.root, "sys")) }
func (m *machine) dev() fs.FS { return os.DirFS(filepath.Join(m.root, "dev")) }

// add adds a device. As in the kernel's tree, the list of devices has links.
func (m *machine) add(address, kind, driver, group string) {
	m.t.Helper()
	at := filepath.Join(m.root, "sys/devices/pci0000:00", address)
	if err := os.MkdirAll(at, 0o755); err != nil {
		m.t.Fatal(err)
	}
	vendor, device, _ := strings.Cut(kind, ":")
	for name, text := range map[string]string{"vendor": "0x" + vendor, "device": "0x" + device, "class": "0x030000", "numa_node": "0"} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text+"\n"), 0o644); err != nil {
			m.t.Fatal(err)
		}
	}
	m.link("../../../bus/pci/drivers/"+driver, filepath.Join(at, "driver"), driver != "")
	m.link("../../../kernel/iommu_groups/"+group, filepath.Join(at, "iommu_group"), group != "")
	m.link("../../../devices/pci0000:00/"+address, filepath.Join(m.root, "sys/bus/pci/devices", address), true)
	if group != "" {
		if err := os.WriteFile(filepath.Join(m.root, "dev/vfio", group), nil, 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *machine) link(target, name string, there bool) {
	m.t.Helper()
	err := os.Remove(name)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = nil
		if there {
			err = os.Symlink(target, name)
		}
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

func TestScanReadsWhatTheKernelSays(t *testing.T) {
	m := newMachine(t)
	m.add("0000:03:00.0", "10de:1eb8", "vfio-pci", "7")
	m.add("0000:04:00.0", "8086:1521", "igb", "8")
	m.add("0000:05:00.0", "8086:1521", "", "")
	m.add("usb1", "8086:1521", "vfio-pci", "9")
	at := func(address, name string) string {
		return filepath.Join(m.root, "sys/devices/pci0000:00", address, name)
	}
	for path, text := range map[string]string{at("0000:04:00.0", "numa_node"): "-1\n", at("0000:05:00.0", "class"): "0x020000\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{at("0000:05:00.0", "numa_node"), filepath.Join(m.root, "dev/vfio/8")} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	// One that is unplugged between the listing and the reading.
	m.link("../../../devices/pci0000:00/0000:06:00.0", filepath.Join(m.root, "sys/bus/pci/devices/0000:06:00.0"), true)
	want := []hostdevice.Found{
		{Address: "0000:03:00.0", Kind: "10de:1eb8", Class: "0x030000", Driver: "vfio-pci", Group: "7", NUMA: 0, Node: true},
		{Address: "0000:04:00.0", Kind: "8086:1521", Class: "0x030000", Driver: "igb", Group: "8", NUMA: -1},
		{Address: "0000:05:00.0", Kind: "8086:1521", Class: "0x020000", NUMA: -1},
	}
	found, err := scan(m.sys(), m.dev())
	if diff := cmp.Diff(want, found); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if found, err := scan(os.DirFS(t.TempDir()), m.dev()); err != nil || len(found) != 0 {
		t.Errorf("a machine without PCI has %v: %v", found, err)
	}
	if err := os.Remove(at("0000:03:00.0", "driver")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at("0000:03:00.0", "driver"), 0o755); err != nil {
		t.Fatal(err)
	}
	if found, err := scan(m.sys(), m.dev()); err == nil || !strings.Contains(err.Error(), "reading the PCI device 0000:03:00.0") || found != nil {
		t.Errorf("a driver that is no link: %v, %v", found, err)
	}
}

// A tree that can't be read says nothing about the devices: they must not become ill by that.
func TestDevicesStayWhileNothingIsKnown(t *testing.T) {
	m := newMachine(t)
	m.add("0000:03:00.0", "10de:1eb8", "vfio-pci", "7")
	p := &PCI{Sys: m.sys(), Dev: m.dev(), Dir: t.TempDir(), Log: testr.New(t),
		Permitted: func() hostdevice.Permitted {
			return hostdevice.Permitted{{Name: cards, Selectors: []string{"10de:1eb8"}}}
		}}
	ctx, cancel := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	p.round(ctx, group)
	before := p.offers[cards]
	p.Sys = broken{}
	p.round(ctx, group)
	if after := p.offers[cards]; len(before) != 1 || !slices.Equal(before, after) {
		t.Errorf("%+v became %+v", before, after)
	}
	cancel()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

type broken struct{ opened *int }

func (b broken) Open(string) (fs.File, error) {
	if b.opened != nil {
		*b.opened++
	}
	return nil, errors.New("the disk is broken")
}

// list reads the next list of devices: the id and the health of each.
func list(t *testing.T, stream v1beta1.DevicePlugin_ListAndWatchClient) string {
	t.Helper()
	response, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, d := range response.Devices {
		if d.Topology == nil || len(d.Topology.Nodes) != 1 || d.Topology.Nodes[0].ID != 0 {
			t.Errorf("the topology of %s is %v", d.ID, d.Topology)
		}
		texts = append(texts, d.ID+" "+d.Health)
	}
	return strings.Join(texts, ", ")
}

// dial connects to a plugin as the kubelet does.
func dial(t *testing.T, socket string) v1beta1.DevicePluginClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return v1beta1.NewDevicePluginClient(conn)
}

func TestADeviceIsOfferedAsLongAsItIsPermittedAndThere(t *testing.T) {
	m, dir := newMachine(t), t.TempDir()
	permitted := hostdevice.Permitted{
		{Name: cards, Selectors: []string{"10de:1eb8"}}, {Name: "example.test/none", Selectors: []string{"8086:1521"}},
		{Name: "example.test/elsewhere", Selectors: []string{"10de:1eb8"}, External: true},
	}
	k := startKubelet(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	p := &PCI{Sys: m.sys(), Dev: m.dev(), Dir: dir, Permitted: func() hostdevice.Permitted { return permitted }, Log: testr.New(t)}
	m.add("0000:03:00.0", "10de:1eb8", "vfio-pci", "7")
	m.add("0000:04:00.0", "10de:1eb8", "nvidia", "8")
	p.round(ctx, group)
	request := k.await(t)
	socket := filepath.Join(dir, request.Endpoint)
	plugin := dial(t, socket)
	stream, err := plugin.ListAndWatch(t.Context(), &v1beta1.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		change func()
		want   string
	}{
		{func() {}, "0000:03:00.0 Healthy"},
		{func() { m.add("0000:04:00.0", "10de:1eb8", "vfio-pci", "8") }, "0000:03:00.0 Healthy, 0000:04:00.0 Healthy"},
		{func() { m.link("", filepath.Join(m.root, "sys/bus/pci/devices/0000:03:00.0"), false) }, "0000:03:00.0 Unhealthy, 0000:04:00.0 Healthy"},
	} {
		step.change()
		p.round(ctx, group)
		if got := list(t, stream); got != step.want {
			t.Errorf("the devices are %s, want %s", got, step.want)
		}
	}
	allocate(t, plugin)

	// The next kubelet must learn the same.
	k.server.Stop()
	k = startKubelet(t, dir)
	request = k.await(t)
	if stream, err = dial(t, socket).ListAndWatch(t.Context(), &v1beta1.Empty{}); err != nil {
		t.Fatal(err)
	}
	if got := list(t, stream); got != "0000:03:00.0 Unhealthy, 0000:04:00.0 Healthy" || request.ResourceName != cards {
		t.Errorf("the next kubelet learns %s of %s", got, request.ResourceName)
	}

	permitted = nil
	p.round(ctx, group)
	if got, err := stream.Recv(); err == nil {
		t.Errorf("what is not permitted is offered: %v", got)
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket remains: %v", err)
	}
	select {
	case request := <-k.registered:
		t.Errorf("%s was offered, too", request.ResourceName)
	default:
	}
	cancel()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// allocate checks the answers for the devices of the test's machine, of which 0000:03:00.0 is gone.
func allocate(t *testing.T, plugin v1beta1.DevicePluginClient) {
	t.Helper()
	ask := func(ids ...string) (*v1beta1.AllocateResponse, error) {
		return plugin.Allocate(t.Context(), &v1beta1.AllocateRequest{ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: ids}}})
	}
	given, err := ask("0000:04:00.0")
	if err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for _, d := range given.ContainerResponses[0].Devices {
		nodes = append(nodes, d.HostPath+" "+d.ContainerPath+" "+d.Permissions)
	}
	if want := []string{"/dev/vfio/vfio /dev/vfio/vfio rw", "/dev/vfio/8 /dev/vfio/8 rw"}; !slices.Equal(nodes, want) {
		t.Errorf("the container gets %q, want %q", nodes, want)
	}
	if diff := cmp.Diff(map[string]string{"PCI_RESOURCE_EXAMPLE_TEST_CARD": "0000:04:00.0"}, given.ContainerResponses[0].Envs); diff != "" {
		t.Errorf("its environment (-want +got):\n%s", diff)
	}
	for id, want := range map[string]string{
		"0000:03:00.0": "the device 0000:03:00.0 of example.test/card can't be given to a guest: the device is gone",
		"0000:09:00.0": "the node offers no device 0000:09:00.0 as example.test/card",
	} {
		if _, err := ask("0000:04:00.0", id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is given: %v", id, err)
		}
	}
}

func TestSeveralDevicesOfOneContainer(t *testing.T) {
	o := newOffered(cards)
	o.set([]hostdevice.Offer{{Address: "0000:03:00.0", Group: "7", NUMA: -1}, {Address: "0000:65:00.0", Group: "9", NUMA: -1}})
	answer, err := o.allocate([]string{"0000:65:00.0", "0000:03:00.0"})
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.Envs[hostdevice.Variable(cards)]; got != "0000:03:00.0,0000:65:00.0" || len(answer.Devices) != 3 {
		t.Errorf("it gets %s with %d device nodes", got, len(answer.Devices))
	}
	if list, _ := o.devices(); list[0].Topology != nil {
		t.Errorf("a NUMA node that nobody knows: %v", list[0].Topology)
	}
}

// Nodes of clusters without permitted devices must not spend their time on it.
func TestTheNodeIsLookedAtWhereDevicesArePermitted(t *testing.T) {
	for external, want := range map[bool]int{true: 0, false: 12} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 12*pace-time.Second)
			defer cancel()
			opened := 0
			p := &PCI{Sys: broken{&opened}, Dev: broken{}, Dir: "/nowhere", Permitted: func() hostdevice.Permitted {
				return hostdevice.Permitted{{Name: cards, Selectors: []string{"10de:1eb8"}, External: external}}
			}, Log: logr.Discard()}
			if err := p.Run(ctx); err != nil || opened != want {
				t.Errorf("with another plugin: %v, it was looked at %d times, want %d: %v", external, opened, want, err)
			}
		})
	}
}
