//go:build apiserver

package api

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/rules/migration/evacuation"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// newPod makes a pod on the test's node, of a VMI if one is named.
func (w *world) newPod(t *testing.T, name, vmi string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: corev1.PodSpec{NodeName: w.node.name, AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "compute", Image: "example.com/none"}}},
	}
	if vmi != "" {
		pod.Labels = map[string]string{v1.AppLabel: "virt-launcher"}
		pod.Annotations = map[string]string{v1.DomainAnnotation: vmi}
	}
	// The namespace gets its service account a moment after its creation.
	w.eventually(t, "a pod can be made", func() error { return w.component(admission.ControllerServiceAccount).Create(t.Context(), pod) })
	t.Cleanup(func() { _ = w.admin.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) })
	return pod
}

// evict requests an eviction. A dry run is marked where kubectl marks it.
func (w *world) evict(t *testing.T, pod *corev1.Pod, dryRun bool) error {
	t.Helper()
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if dryRun {
		eviction.DeleteOptions = &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	}
	return w.admin.SubResource("eviction").Create(t.Context(), pod, eviction)
}

// guestOn makes a running VMI and its guest's pod, which it returns.
func (w *world) guestOn(t *testing.T, name string, strategy v1.EvictionStrategy) (*v1.VirtualMachineInstance, *corev1.Pod) {
	t.Helper()
	vmi := w.vmi(name)
	vmi.Spec.EvictionStrategy = &strategy
	must(t, w.component(admission.ControllerServiceAccount).Create(t.Context(), vmi))
	pod := w.newPod(t, launcherpod.Name(vmi), name)
	controller := w.component(admission.ControllerServiceAccount)
	before := vmi.DeepCopy()
	vmi.Status.Phase, vmi.Status.NodeName = v1.Scheduled, w.node.name
	vmi.Status.ActivePods = map[types.UID]string{pod.UID: w.node.name}
	must(t, controller.Patch(t.Context(), vmi, client.MergeFrom(before)))
	before = vmi.DeepCopy()
	vmi.Status.Phase = v1.Running
	must(t, controller.Patch(t.Context(), vmi, client.MergeFrom(before)))
	return vmi, pod
}

// evictions must be answered by the VMI's strategy, and must mark a VMI that has to move.
func (w *world) evictions(t *testing.T) {
	const denied = `admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: `
	must(t, w.evict(t, w.newPod(t, "anybodys", ""), false))
	must(t, w.evict(t, w.newPod(t, "virt-launcher-by-name", ""), false))
	_, stopped := w.guestOn(t, "evicted-none", v1.EvictionStrategyNone)
	must(t, w.evict(t, stopped, false))

	for name, strategy := range map[string]v1.EvictionStrategy{
		"evicted-moves": v1.EvictionStrategyLiveMigrate, "evicted-can": v1.EvictionStrategyLiveMigrateIfPossible, "evicted-external": v1.EvictionStrategyExternal,
	} {
		vmi, pod := w.guestOn(t, name, strategy)
		marked := func() string {
			must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi))
			return vmi.Status.EvacuationNodeName
		}
		triggered := evacuation.Triggered + ` "` + w.namespace + "/" + name + `": `
		if err := w.evict(t, pod, true); !apierrors.IsTooManyRequests(err) || marked() != "" {
			t.Errorf("%s: a dry run is answered %v, and the VMI marked for node %q", name, err, marked())
		}
		for _, want := range []string{triggered, "Evacuation in progress: " + triggered} {
			if err := w.evict(t, pod, false); !apierrors.IsTooManyRequests(err) || !strings.HasPrefix(sentence(err), denied+want) {
				t.Errorf("%s: the answer is %v", name, err)
			}
		}
		if node := marked(); node != w.node.name || vmi.Annotations[evacuation.CordonAnnotation] != "" {
			t.Errorf("%s: marked for node %q, annotations %v", name, node, vmi.Annotations)
		}
	}
	w.cordonedEviction(t)
}

// cordonedEviction evicts guests from a cordoned node, including one that can't move.
func (w *world) cordonedEviction(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node.name}}
	cordon := func(is string) {
		must(t, w.admin.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":`+is+`}}`))))
	}
	cordon("true")
	defer cordon("null")
	vmi, pod := w.guestOn(t, "evicted-drained", v1.EvictionStrategyLiveMigrate)
	if err := w.evict(t, pod, false); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the answer is %v", err)
	}
	must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi))
	if vmi.Annotations[evacuation.CordonAnnotation] != w.node.name || vmi.Status.EvacuationNodeName != w.node.name {
		t.Errorf("marked for node %q, annotations %v", vmi.Status.EvacuationNodeName, vmi.Annotations)
	}
	stays, held := w.guestOn(t, "evicted-stays", v1.EvictionStrategyLiveMigrate)
	before := stays.DeepCopy()
	stays.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
		Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse, Message: "cannot migrate VMI: PVC data is not shared",
	}}
	must(t, w.component(admission.ControllerServiceAccount).Patch(t.Context(), stays, client.MergeFrom(before)))
	if err := w.evict(t, held, false); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "can't be migrated: PVC data is not shared") {
		t.Errorf("one that can't move: %v", err)
	}
	must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(stays), stays))
	if stays.Status.EvacuationNodeName != "" {
		t.Error("one that can't move is marked")
	}
}
