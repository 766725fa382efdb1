//go:build apiserver

package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podlabels"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

// lift removes the policies.
func (w *world) keepLabels(pod *corev1.Pod) (lift func()) {
	w.t.Helper()
	const account = "system:serviceaccount:%s:kubevirt-controller"
	objects := w.manifest("../../config/rbac/pod-policy.yaml", fmt.Sprintf(account, "kubevirt"), fmt.Sprintf(account, w.namespace))
	lift = func() {
		for _, object := range objects {
			_ = w.client.Delete(w.cleanup(), object.DeepCopy())
		}
	}
	w.t.Cleanup(lift)
	for _, object := range objects {
		object.SetName(object.GetName() + "-" + w.namespace)
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
			policy, _, err := unstructured.NestedString(object.Object, "spec", "policyName")
			w.do("reading a binding", err)
			w.do("binding the policy", unstructured.SetNestedField(object.Object, policy+"-"+w.namespace, "spec", "policyName"))
			w.do("binding it here", unstructured.SetNestedStringMap(object.Object, map[string]string{corev1.LabelMetadataName: w.namespace},
				"spec", "matchResources", "namespaceSelector", "matchLabels"))
		}
		w.do("making the policy", w.client.Create(w.ctx, object))
	}
	w.eventually("the policy to be in force", func() (bool, string) {
		err := w.unlabel(pod, false, client.DryRunAll)
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "may change the labels of Drydock's pods"), fmt.Sprint(err)
	})
	return lift
}

// unlabel removes all labels that rules read from a pod, except its kind and its VMI's UID, through the status
// subresource if status is set.
func (w *world) unlabel(pod *corev1.Pod, status bool, options ...client.PatchOption) error {
	w.t.Helper()
	off := map[string]any{}
	for label := range pod.Labels {
		if podlabels.IsLabel(label) && label != v1.AppLabel && label != v1.CreatedByLabel {
			off[label] = nil
		}
	}
	if len(off) == 0 {
		w.t.Fatalf("the pod has no labels to take off: %v", slices.Collect(maps.Keys(pod.Labels)))
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": off}})
	w.do("encoding the patch", err)
	patch := client.RawPatch(types.MergePatchType, text)
	if status {
		return w.client.Status().Patch(w.ctx, pod.DeepCopy(), patch)
	}
	return w.client.Patch(w.ctx, pod.DeepCopy(), patch, options...)
}

// hide removes a pod's labels, after removing the policies as an administrator could.
func (w *world) hide(pod *corev1.Pod, lift func()) {
	w.t.Helper()
	lift()
	w.eventually("the policy to be gone and the labels to be off", func() (bool, string) {
		err := w.unlabel(pod, false)
		return err == nil, fmt.Sprint(err)
	})
}

func TestALauncherPodCantBeHiddenFromTheNextGuestOnItsDisk(t *testing.T) {
	w := newWorld(t)
	w.createClaim()
	w.createVMIOn("one")
	pod := w.run("one")
	w.do("reading the pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
	lift := w.keepLabels(pod)
	if err := w.unlabel(pod, true); !apierrors.IsInvalid(err) {
		t.Errorf("taking labels off by way of the status is answered %v", err)
	}
	w.do("labeling it with what no rule goes by", w.client.Patch(w.ctx, pod.DeepCopy(),
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"a"}}}`))))

	w.hide(pod, lift)
	w.createVMIOn("two")
	w.awaitWaiting("two", vmicontroller.ReasonClaimInUse)
	w.awaitSettled()
	if n := len(w.pods()); n != 1 {
		t.Fatalf("there are %d pods on one disk", n)
	}
	w.end("one", pod, v1.Succeeded)
	w.run("two")
}

func TestALauncherPodCantBeHiddenFromTheNextGuestOfItsVM(t *testing.T) {
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyAlways)
	pod := w.run("vm")
	w.do("reading the pod", w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
	w.hide(pod, w.keepLabels(pod))
	if _, named := pod.Labels[launcherpod.NameLabel]; !named {
		t.Fatalf("the pod was made without the label of its VMI's name: %v", pod.Labels)
	}
	first := w.vmi("vm")
	w.disown(pod)
	w.desert(first)
	second := w.successor(first)
	w.awaitWaiting("vm", vmicontroller.ReasonPredecessorRuns)
	w.awaitPodDeletion(pod)
	w.finishPod(pod)
	w.awaitPod(second)
	w.run("vm")
}
