//go:build apiserver

package controller

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
)

func (w *world) allowPostCopy(allowed bool) {
	w.t.Helper()
	w.allow(20, 20)
	kv := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Name: "kubevirt", Namespace: w.namespace}}
	patch := fmt.Sprintf(`{"spec":{"configuration":{"migrations":{"allowPostCopy":%t}}}}`, allowed)
	w.do("allowing post-copy", w.client.Patch(w.ctx, kv, client.RawPatch(types.MergePatchType, []byte(patch))))
	w.seesKubeVirt()
}

// postCopyNode makes a node for guests that no other test's VMI selects; label has its virt-handler's result about
// post-copy.
func (w *world) postCopyNode(name, label string, edit func(*corev1.Node)) {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-" + name, Labels: map[string]string{
		v1.NodeSchedulable: "true", "test": w.namespace, corev1.LabelArchStable: "amd64",
	}}}
	if label != "" {
		node.Labels[layout.PostCopyLabel] = label
	}
	edit(node)
	w.do("making a node", w.client.Create(w.ctx, node))
	w.t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), node) })
}

// A target pod must get userfaultfd if post-copy is allowed, every possible node has the profile, and one of them
// supports post-copy. In every other case it must be as without post-copy.
func TestWhichTargetPodsMayHaveUserfaultfd(t *testing.T) {
	asIs := func(*corev1.Node) {}
	w := newWorld(t)
	w.t.Cleanup(func() {
		_ = w.client.Delete(w.cleanup(), &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Name: "kubevirt", Namespace: w.namespace}})
	})
	for i, step := range []struct {
		what    string
		allowed bool
		change  func()
		given   bool
	}{
		{"no node has it", true, func() { w.postCopyNode("refuses", layout.PostCopyUnusable, asIs) }, false},
		{"a node has it", true, func() { w.postCopyNode("has", layout.PostCopyUsable, asIs) }, true},
		{"it is not allowed", false, func() {}, false},
		{"a node that takes no pods lacks the profile", true, func() {
			w.postCopyNode("cordoned", "", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		}, true},
		{"a node that the VMI does not select lacks it", true, func() {
			w.postCopyNode("other", "", func(n *corev1.Node) { n.Labels["test"] = "other" })
		}, true},
		{"a node lacks the profile", true, func() { w.postCopyNode("lacks", "", asIs) }, false},
	} {
		w.allowPostCopy(step.allowed)
		step.change()
		w.awaitSettled() // the loops have seen the nodes
		name := fmt.Sprintf("vmi-%d", i)
		vmi := &v1.VirtualMachineInstance{Spec: testSpec()}
		vmi.Name, vmi.Namespace, vmi.Finalizers = name, w.namespace, []string{v1.VirtualMachineInstanceFinalizer}
		vmi.Spec.NodeSelector = map[string]string{"test": w.namespace}
		w.do("creating a VMI", w.client.Create(w.ctx, vmi))
		w.run(name)
		pod := w.awaitTarget(w.migrate("move-"+name, name))
		profile := pod.Spec.Containers[0].SecurityContext.SeccompProfile
		given := profile != nil && profile.Type == corev1.SeccompProfileTypeLocalhost && *profile.LocalhostProfile == layout.LauncherSeccompProfile
		if given != step.given || given == (profile == nil) {
			t.Errorf("%s: the target pod's profile is %+v, want Drydock's own: %v", step.what, profile, step.given)
		}
		if own := pod.Spec.SecurityContext.SeccompProfile; own == nil || own.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: of the pod itself it is %+v", step.what, own)
		}
	}
}
