//go:build apiserver

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/cluster/components"
	"drydock.dev/drydock/internal/rules/cluster/schedulable"
)

// guestsLabel is the label by which virt-handler's DaemonSet selects nodes here. Its value is the world's namespace.
const guestsLabel = "example.com/guests"

func (w *writes) ofNode(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, line := range w.lines {
		if strings.Contains(line, " /api/v1/nodes/"+name+" ") {
			out = append(out, line)
		}
	}
	return out
}

// The test plays the node's kubelet.
func (w *world) guestNode(prefix, devices string, labels map[string]string) *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix, Labels: map[string]string{v1.NodeSchedulable: "true"}}}
	for name, value := range labels {
		node.Labels[name] = value
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("9"),
	}
	if devices != "" {
		room[layout.ResourceTUN] = resource.MustParse(devices)
	}
	node.Status = corev1.NodeStatus{Capacity: room, Allocatable: room}
	w.do("making a node", w.client.Create(w.ctx, node))
	w.t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), node) })
	return node
}

// devices plays a kubelet that offers this many devices.
func (w *world) devices(node *corev1.Node, count string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"status":{"allocatable":{%q:%q}}}`, layout.ResourceTUN, count)
	w.do("offering devices", w.client.Status().Patch(w.ctx, node, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// labelNode plays virt-handler, or an administrator.
func (w *world) labelNode(node *corev1.Node, name, value string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, name, value)
	w.do("labeling the node", w.client.Patch(w.ctx, node, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (w *world) awaitTakesGuests(node *corev1.Node, want string) {
	w.t.Helper()
	w.eventually("the label to be "+want, func() (bool, string) {
		w.do("reading the node", w.client.Get(w.ctx, client.ObjectKeyFromObject(node), node))
		return node.Labels[v1.NodeSchedulable] == want, "it is " + node.Labels[v1.NodeSchedulable]
	})
}

// stillTakesGuests triggers the loop for the node, and checks that it writes nothing. The loop handles one node after
// the other: when a later node without virt-handler is marked, it has handled this one.
func (w *world) stillTakesGuests(when string, node *corev1.Node, writes int) {
	w.t.Helper()
	touch := client.RawPatch(types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"annotations":{"example.com/when":%q}}}`, when)))
	w.do("touching the node", w.client.Patch(w.ctx, node, touch))
	empty := w.guestNode("empty-", "", nil)
	w.awaitTakesGuests(empty, "false")
	w.do("removing the empty node", w.client.Delete(w.ctx, empty))
	w.awaitTakesGuests(node, "true")
	if got := granted(w.writes.ofNode(node.Name)); len(got) != writes {
		w.t.Errorf("%s, the node was written: %q", when, got)
	}
}

func (w *world) nodePolicy() {
	w.t.Helper()
	const account = "system:serviceaccount:%s:kubevirt-controller"
	for _, object := range w.manifest("../../config/rbac/node-policy.yaml", fmt.Sprintf(account, "kubevirt"), fmt.Sprintf(account, w.namespace)) {
		object.SetName("test-" + w.namespace)
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
			w.do("binding the policy", unstructured.SetNestedField(object.Object, object.GetName(), "spec", "policyName"))
		}
		w.do("making the policy", w.client.Create(w.ctx, object))
		w.t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), object) })
	}
	loops, err := client.New(w.config, client.Options{Scheme: newScheme()})
	w.do("making a client", err)
	node := w.guestNode("policy-", "1", nil)
	w.eventually("the policy to be in force", func() (bool, string) {
		err := loops.Patch(w.ctx, node.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)), client.DryRunAll)
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "virt-controller may only say of a node"), fmt.Sprint(err)
	})
	w.do("reading the node", w.client.Get(w.ctx, client.ObjectKeyFromObject(node), node))
	err = loops.Patch(w.ctx, schedulable.Mark(node), client.MergeFrom(node))
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "that virt-handler serves") {
		w.t.Errorf("marking a node that virt-handler serves is answered %v", err)
	}
}

// The cluster's own controller makes the pods.
func (w *world) handlerWanting() *appsv1.DaemonSet {
	w.t.Helper()
	labels := map[string]string{v1.AppLabel: "virt-handler"}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: components.Handler}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	ds.Spec.Template.Labels = labels
	ds.Spec.Template.Spec = corev1.PodSpec{
		NodeSelector: map[string]string{guestsLabel: w.namespace},
		Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers:   []corev1.Container{{Name: "c", Image: "example.com/none:1"}},
	}
	w.do("making the DaemonSet", w.client.Create(w.ctx, ds))
	return ds
}

// workloads.nodePlacement does it so.
func (w *world) place(ds *appsv1.DaemonSet, value string) {
	w.t.Helper()
	w.do("placing virt-handler", retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(ds), ds); err != nil {
			return err
		}
		ds.Spec.Template.Spec.NodeSelector[guestsLabel] = value
		return w.client.Update(w.ctx, ds)
	}))
}

func (w *world) awaitHandler(node *corev1.Node, but types.UID) *corev1.Pod {
	w.t.Helper()
	var found corev1.Pod
	w.eventually("virt-handler on the node", func() (bool, string) {
		i := slices.IndexFunc(w.pods(), func(p corev1.Pod) bool {
			found = p
			return p.Labels[v1.AppLabel] == "virt-handler" && p.Spec.NodeName == node.Name && p.UID != but && p.DeletionTimestamp == nil
		})
		return i >= 0, "there is none"
	})
	return &found
}

// goesByTheLabel makes a pod on the node that needs schedulable nodes and is not in virt-controller's caches.
func (w *world) goesByTheLabel(node *corev1.Node) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "by-the-label"}}
	pod.Spec.NodeName, pod.Spec.NodeSelector = node.Name, map[string]string{v1.NodeSchedulable: "true"}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "example.com/none:1"}}
	w.do("making a pod", w.client.Create(w.ctx, pod))
	return pod
}

func TestANodeThatVirtHandlerLeavesSaysSo(t *testing.T) {
	w := newWorld(t)
	w.nodePolicy()
	node := w.guestNode("leaves-", "1k", map[string]string{guestsLabel: w.namespace})
	ds := w.handlerWanting()
	handler := w.awaitHandler(node, "")
	w.createVMI("guest")
	guest := w.awaitLauncher("guest")
	w.bindTo(guest, node.Name)
	w.awaitPhase("guest", v1.Scheduled)
	w.phase("guest", v1.Running)
	w.stillTakesGuests("while virt-handler serves the node", node, 0)

	w.devices(node, "0")
	w.stillTakesGuests("while virt-handler is away", node, 0)
	w.place(ds, "elsewhere")
	w.awaitPodDeletion(handler)
	w.stillTakesGuests("while virt-handler and a guest are on a node that it is to leave", node, 0)
	w.removePod(handler)
	w.stillTakesGuests("while a guest is there", node, 0)
	other := w.goesByTheLabel(node)
	w.end("guest", guest, v1.Succeeded)
	w.stillTakesGuests("while a pod is there that a kubelet would end by the label", node, 0)
	w.removePod(other)
	w.labelNode(node, "zone", "a") // The node changes, as nodes do every five minutes.
	w.awaitTakesGuests(node, "false")

	// In a steady state nothing is written, whatever the kubelet reports.
	w.labelNode(node, "zone", "b")
	w.devices(node, "0")
	empty := w.guestNode("empty-", "0", nil)
	w.awaitTakesGuests(empty, "false")
	if got := granted(w.writes.ofNode(node.Name)); len(got) != 1 || !strings.HasPrefix(got[0], "PATCH ") || !strings.HasSuffix(got[0], " 200") {
		t.Errorf("one write was wanted, got %q", got)
	}

	w.place(ds, w.namespace)
	handler = w.awaitHandler(node, handler.UID)
	w.labelNode(node, v1.NodeSchedulable, "true") // as virt-handler does
	w.stillTakesGuests("when virt-handler is back, before the kubelet offers its devices", node, 1)
	w.devices(node, "1k")
	w.stillTakesGuests("when virt-handler is back", node, 1)
	w.devices(node, "0")
	w.removePod(handler)
	w.stillTakesGuests("when virt-handler has crashed", node, 1)
}

// virt-handler leaves an empty node: the deletion of its DaemonSet's pod is the last event about it. The node must be
// marked.
func TestAnEmptyNodeThatVirtHandlerLeavesSaysSo(t *testing.T) {
	w := newWorld(t)
	node := w.guestNode("leaves-", "1k", map[string]string{guestsLabel: w.namespace})
	w.handlerWanting()
	handler := w.awaitHandler(node, "")
	w.labelNode(node, guestsLabel, "no-more")
	w.awaitPodDeletion(handler)
	w.devices(node, "0")
	w.stillTakesGuests("while virt-handler ends", node, 0)
	w.removePod(handler)
	w.awaitTakesGuests(node, "false")
}

// virt-controller dies before it has written. The next one must mark the nodes.
func TestTheNextVirtControllerMarksNodesThatVirtHandlerHasLeft(t *testing.T) {
	w := newWorld(t)
	w.stop()
	node := w.guestNode("left-", "", nil)
	w.handlerWanting()
	w.startLoops()
	w.awaitTakesGuests(node, "false")
}

// Two nodes must not be marked: one whose label was removed by hand, and one without a DaemonSet to compare with.
func TestNobodyMarksNodesWithoutVirtHandlersDaemonSet(t *testing.T) {
	w := newWorld(t)
	node := w.guestNode("kept-", "", nil)
	ds := w.handlerWanting()
	w.awaitTakesGuests(node, "false")
	w.do("deleting the DaemonSet", w.client.Delete(w.ctx, ds))
	w.labelNode(node, v1.NodeSchedulable, "true")
	w.awaitSettled()
	w.awaitTakesGuests(node, "true")
}
