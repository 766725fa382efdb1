//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/network/sriov"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// vfResource is offered by the test's device plugin, and vfAddresses are its two devices. No machine has them: no PC
// has a PCI domain of that number.
const vfResource = "example.test/vf"

var vfAddresses = []string{"fffe:ff:1f.6", "fffe:ff:1f.7"}

// devicePlugin offers vfResource to a node's kubelet, as the SR-IOV network device plugin offers virtual functions.
type devicePlugin struct {
	v1beta1.UnimplementedDevicePluginServer
	ended context.Context
}

func (p *devicePlugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

func (p *devicePlugin) ListAndWatch(_ *v1beta1.Empty, stream v1beta1.DevicePlugin_ListAndWatchServer) error {
	var list []*v1beta1.Device
	for _, address := range vfAddresses {
		list = append(list, &v1beta1.Device{ID: address, Health: v1beta1.Healthy})
	}
	if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: list}); err != nil {
		return err
	}
	select {
	case <-p.ended.Done():
	case <-stream.Context().Done():
	}
	return nil
}

// Allocate names the devices in the environment, and a device node in place of VFIO's.
func (p *devicePlugin) Allocate(_ context.Context, request *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	answer := &v1beta1.AllocateResponse{}
	for _, of := range request.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &v1beta1.ContainerAllocateResponse{
			Envs:    map[string]string{"PCIDEVICE_EXAMPLE_TEST_VF": strings.Join(of.DevicesIds, ",")},
			Devices: []*v1beta1.DeviceSpec{{HostPath: "/dev/null", ContainerPath: layout.VFIODir + "/vfio", Permissions: "rw"}},
		})
	}
	return answer, nil
}

// offerDevices makes node1 offer vfResource until the test ends.
func offerDevices(t *testing.T) {
	t.Helper()
	root := fmt.Sprintf("/proc/%d/root", kubeletPID(t, node1))
	for _, address := range vfAddresses {
		info, err := json.Marshal(map[string]any{"type": "pci", "version": "1.1.0", "pci": map[string]any{"pci-address": address}})
		if err != nil {
			t.Fatal(err)
		}
		name := strings.ReplaceAll(vfResource, "/", "-") + "-" + address + "-device.json"
		writeFile(t, filepath.Join(root, "run/k8s.cni.cncf.io/devinfo/dp", name), info, 0o644)
	}
	dir := filepath.Join(root, v1beta1.DevicePluginPath)
	const endpoint = "drydock-test-vf.sock"
	listener, err := net.Listen("unix", filepath.Join(dir, endpoint))
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(context.Background())
	server, served := grpc.NewServer(), make(chan error, 1)
	v1beta1.RegisterDevicePluginServer(server, &devicePlugin{ended: ended})
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		end()
		server.Stop() // closes the listener, which removes its socket
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("serving the kubelet: %v", err)
		}
	})
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, filepath.Base(v1beta1.KubeletSocket)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = v1beta1.NewRegistrationClient(conn).Register(t.Context(), &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: endpoint, ResourceName: vfResource, Options: &v1beta1.DevicePluginOptions{},
	})
	if err != nil {
		t.Fatalf("registering with the kubelet of %s: %v", node1, err)
	}
	await(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node1}}, &corev1.NodeList{}, "two devices", func(node *corev1.Node) bool {
		q := node.Status.Allocatable[vfResource]
		return q.Value() == int64(len(vfAddresses))
	})
}

func kubeletPID(t *testing.T, node string) int {
	t.Helper()
	return pidOf(t, node, "kubelet")
}

// pidOf returns the process of a node's component.
func pidOf(t *testing.T, node, component string) int {
	t.Helper()
	for _, n := range status(t).Nodes {
		for _, c := range n.Components {
			if n.Name == node && c.Name == component {
				return c.PID
			}
		}
	}
	t.Fatalf("node %s has no %s", node, component)
	return 0
}

// TestAGuestIsGivenADeviceOfItsNode follows an SR-IOV interface from the NetworkAttachmentDefinition to QEMU's
// arguments. QEMU must fail because the machine has no such device. Only here the device manager and Multus are
// real.
func TestAGuestIsGivenADeviceOfItsNode(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	offerDevices(t)
	newAttachment(t, ns, "vf", map[string]any{"cniVersion": "1.0.0", "name": "vf", "type": "bridge", "bridge": "lan1"})
	vmi := newVMI(ns, "vf")
	vmi.Spec.Networks = []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}}}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}}}}
	for _, name := range []string{"a", "b"} {
		vmi.Spec.Networks = append(vmi.Spec.Networks, v1.Network{Name: name, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "vf"}}})
		vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, v1.Interface{Name: name, InterfaceBindingMethod: v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}})
	}
	vmi.Spec.Domain.Devices.Interfaces[1].MacAddress = "02:00:00:00:0a:01"
	create(t, vmi)
	const lacks = "has no annotation " + sriov.ResourceAnnotation
	awaitVMI(t, ns, "vf", "what the definition lacks", func(vmi *v1.VirtualMachineInstance) bool {
		c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
		return c != nil && strings.Contains(c.Message, "network a: the NetworkAttachmentDefinition "+ns+"/vf "+lacks)
	})
	annotateAttachment(t, ns, "vf", vfResource)
	failed := awaitVMI(t, ns, "vf", "QEMU's word", func(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.Phase == v1.Failed })
	pod := launcherPod(t, failed)
	asks := pod.Spec.Containers[0].Resources
	requests, limits := asks.Requests[vfResource], asks.Limits[vfResource]
	if requests.Value() != 2 || limits.Value() != 2 || pod.Spec.NodeName != node1 {
		t.Errorf("the pod on %s requests %s and is limited to %s", pod.Spec.NodeName, &requests, &limits)
	}
	devices := nichotplug.ReadDevices(pod)
	a, b := devices[layout.SecondaryInterface("a")], devices[layout.SecondaryInterface("b")]
	if len(devices) != 2 || a == "" || a == b || !strings.Contains(strings.Join(vfAddresses, " "), a) || !strings.Contains(strings.Join(vfAddresses, " "), b) {
		t.Errorf("Multus says %s", pod.Annotations[nichotplug.StatusAnnotation])
	}
	if !strings.Contains(pod.Annotations[nichotplug.StatusAnnotation], "02:00:00:00:0a:01") {
		t.Errorf("the network plugin was not told the MAC address: %s", pod.Annotations[nichotplug.StatusAnnotation])
	}
	want := fmt.Sprintf(`"bus":"port2","driver":"vfio-pci","host":"%s","id":"net-a","romfile":""}: vfio /sys/bus/pci/devices/%s: no such host device`, a, a)
	said := ""
	for _, c := range failed.Status.Conditions {
		said += c.Message + "\n"
	}
	if !strings.Contains(said, want) {
		t.Errorf("the VMI says\n%s, want\n%s", said, want)
	}
}

func annotateAttachment(t *testing.T, ns, name, resource string) {
	t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}}
	obj.SetNamespace(ns)
	obj.SetName(name)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, sriov.ResourceAnnotation, resource)
	if err := cluster.client.Patch(t.Context(), obj, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatalf("annotating %s: %v", name, err)
	}
}
