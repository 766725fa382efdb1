package vmicontroller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// The pod of a guest with its address on the pods' network must be labeled with its node, once.
func TestWhichPodsAreLabelledWithTheirNode(t *testing.T) {
	keeps := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.Phase, vmi.Status.NodeName = v1.Running, "a"
		vmi.Status.ActivePods = map[types.UID]string{"pod-uid": "a"}
		metav1.SetMetaDataAnnotation(&vmi.ObjectMeta, v1.AllowPodBridgeNetworkLiveMigrationAnnotation, "")
	}
	on := func(node, label string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.NodeName = node
			if label != "" {
				pod.Labels[v1.NodeNameLabel] = label
			}
		}
	}
	for name, c := range map[string]struct {
		vmi  func(*v1.VirtualMachineInstance)
		pod  func(*corev1.Pod)
		want bool
	}{
		"it is not labeled yet":            {keeps, on("a", ""), true},
		"it is labeled":                    {keeps, on("a", "a"), false},
		"its label is another's":           {keeps, on("a", "b"), true},
		"the guest is on another node":     {keeps, on("b", ""), false},
		"it has ended":                     {keeps, func(pod *corev1.Pod) { on("a", "")(pod); pod.Status.Phase = corev1.PodFailed }, false},
		"no plugin goes by it":             {func(vmi *v1.VirtualMachineInstance) { keeps(vmi); vmi.Annotations = nil }, on("a", ""), false},
		"the VMI has no node, nor its pod": {func(vmi *v1.VirtualMachineInstance) { keeps(vmi); vmi.Status.NodeName = "" }, on("", ""), false},
	} {
		vmi := newVMI()
		c.vmi(vmi)
		plan := Decide(Observed{VMI: vmi, Pod: newPod(c.pod), PodAsked: true, Now: now})
		if plan.LabelNode != c.want {
			t.Errorf("%s: the pod gets the label: %t", name, plan.LabelNode)
		}
	}
}
