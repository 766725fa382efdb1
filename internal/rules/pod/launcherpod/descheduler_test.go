package launcherpod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestTheDeschedulerIsToldThatAnEvictionIsInProgress(t *testing.T) {
	for name, c := range map[string]struct {
		marked   string // the node that the VMI is marked for
		has      bool
		edit     func(*corev1.Pod)
		mark, at bool
	}{
		"it runs undisturbed":            {},
		"it was evicted":                 {marked: "a", mark: true, at: true},
		"it was, and the pod says so":    {marked: "a", has: true, mark: true},
		"the request was canceled":       {has: true, at: true},
		"it has left the node":           {marked: "old"},
		"the pod is on the other node":   {marked: "a", edit: func(p *corev1.Pod) { p.Spec.NodeName = "b" }},
		"the pod is being deleted":       {marked: "a", edit: func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }},
		"the pod has ended, and says so": {has: true, edit: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
	} {
		t.Run(name, func(t *testing.T) {
			vmi, pod := &v1.VirtualMachineInstance{}, &corev1.Pod{}
			vmi.Status.NodeName, vmi.Status.EvacuationNodeName, pod.Spec.NodeName = "a", c.marked, "a"
			if c.has {
				pod.Annotations = map[string]string{EvictionInProgressAnnotation: "true"}
			}
			if c.edit != nil {
				c.edit(pod)
			}
			if mark, differs := EvictionMark(vmi, pod); differs != c.at || differs && mark != c.mark {
				t.Errorf("it is marked %t (a change: %t), want %t (%t)", mark, differs, c.mark, c.at)
			}
		})
	}
	if _, differs := EvictionMark(&v1.VirtualMachineInstance{}, nil); differs {
		t.Error("a pod that is not there is marked")
	}
}
