package metrics

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

func TestNodesAreCounted(t *testing.T) {
	node := func(name, schedulable, kvm string, cordoned bool) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.NodeSchedulable: schedulable}}}
		n.Spec.Unschedulable = cordoned
		if kvm != "" {
			n.Status.Allocatable = corev1.ResourceList{layout.ResourceKVM: resource.MustParse(kvm)}
		}
		return n
	}
	expect(t, leader(shelf{nodes: []corev1.Node{
		node("takes guests", "true", "1k", false), node("cordoned", "true", "1k", true), node("left", "false", "0", false), node("other", "", "", false),
	}}), `
drydock_nodes 4
drydock_nodes_schedulable 1
drydock_nodes_with_kvm 2
`, "drydock_nodes", "drydock_nodes_schedulable", "drydock_nodes_with_kvm")
}

func TestGuestsOfASilentNodeAndGuestsThatStandStill(t *testing.T) {
	vmi := func(name, node string, c v1.VirtualMachineInstanceCondition) v1.VirtualMachineInstance {
		vmi := v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
		vmi.Status.NodeName, vmi.Status.Phase, vmi.Status.Conditions = node, v1.Running, []v1.VirtualMachineInstanceCondition{c}
		return vmi
	}
	lost := v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Reason: vmistatus.ReasonNodeLost}
	failed := v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue, Reason: "PausedIOError"}
	expect(t, leader(shelf{vmis: []v1.VirtualMachineInstance{
		vmi("a", "node1", lost), vmi("b", "node1", lost), vmi("c", "node2", v1.VirtualMachineInstanceCondition{}), vmi("d", "node2", failed), vmi("e", "", lost),
	}}), `
drydock_node_silent_guests{node="node1"} 2
drydock_vmi_stopped{name="d",namespace="ns",node="node2",reason="PausedIOError"} 1
`, "drydock_node_silent_guests", "drydock_vmi_stopped")
}

func TestLauncherPodsAreCountedByPhase(t *testing.T) {
	pod := func(phase corev1.PodPhase) corev1.Pod { return corev1.Pod{Status: corev1.PodStatus{Phase: phase}} }
	expect(t, leader(shelf{pods: []corev1.Pod{pod(corev1.PodRunning), pod(corev1.PodFailed), pod(corev1.PodFailed)}}), `
drydock_launcher_pods{phase="failed"} 2
drydock_launcher_pods{phase="pending"} 0
drydock_launcher_pods{phase="running"} 1
drydock_launcher_pods{phase="succeeded"} 0
drydock_launcher_pods{phase="unknown"} 0
`, "drydock_launcher_pods")
}

func TestDrydocksOwnPodsAreCounted(t *testing.T) {
	api := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "virt-api", Namespace: "home"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}}
	api.Status.ReadyReplicas = 1
	elsewhere := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "virt-controller", Namespace: "elsewhere"}}
	handler := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "virt-handler", Namespace: "home"}}
	handler.Status.DesiredNumberScheduled, handler.Status.NumberReady = 5, 4
	expect(t, leader(shelf{workloads: []client.Object{api, elsewhere, handler}}), `
drydock_component_pods_desired{component="virt-api"} 2
drydock_component_pods_desired{component="virt-handler"} 5
drydock_component_pods_ready{component="virt-api"} 1
drydock_component_pods_ready{component="virt-handler"} 4
`, "drydock_component_pods_desired", "drydock_component_pods_ready")
}
