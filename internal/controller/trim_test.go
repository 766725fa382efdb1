package controller

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
)

func podWith(app string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Labels = map[string]string{v1.AppLabel: app}
	pod.Annotations = map[string]string{"kubevirt.io/ephemeral-provisioning": ""}
	pod.Spec = corev1.PodSpec{
		NodeName: "a", PriorityClassName: "b", SchedulerName: "c",
		Tolerations: []corev1.Toleration{{Key: "t"}},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsUser: new(int64(107)), SELinuxOptions: &corev1.SELinuxOptions{Type: "container_kvm_t"},
		},
		Containers: []corev1.Container{{
			Name: "compute", Image: "launcher:1", Command: []string{"virt-launcher"},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}},
		}},
		Volumes: []corev1.Volume{
			{Name: "private", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		},
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}
	return pod
}

func TestOfALauncherPodOnlyWhatIsReadIsKept(t *testing.T) {
	want := podWith("virt-launcher")
	want.Spec.Tolerations = nil
	want.Spec.SecurityContext.RunAsUser = nil
	want.Spec.Containers[0].Command = nil
	want.Spec.Volumes = want.Spec.Volumes[1:]
	got, err := trimPod(podWith("virt-launcher"))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

// Anybody may have written the network status of a pod.
func TestWhatAPodSaysOfItsNetworksIsKeptWithinBounds(t *testing.T) {
	for length, kept := range map[int]bool{nichotplug.MaxAnnotation: true, nichotplug.MaxAnnotation + 1: false} {
		pod := podWith("virt-launcher")
		pod.Annotations[nichotplug.StatusAnnotation] = strings.Repeat("x", length)
		if _, err := trimPod(pod); err != nil {
			t.Fatal(err)
		}
		if _, there := pod.Annotations[nichotplug.StatusAnnotation]; there != kept || len(pod.Annotations) == 0 {
			t.Errorf("%d bytes are kept: %v", length, there)
		}
	}
}

func TestOfANodeOnlyWhatIsReadIsKept(t *testing.T) {
	node := &corev1.Node{}
	node.Name, node.UID, node.ResourceVersion = "node1", "1", "7"
	node.Labels = map[string]string{v1.NodeSchedulable: "true", "zone": "a"}
	node.Annotations = map[string]string{"a": "b"}
	node.Spec = corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "t"}}}
	node.Status.Allocatable = corev1.ResourceList{layout.ResourceTUN: resource.MustParse("0"), layout.ResourceKVM: resource.MustParse("1k"), corev1.ResourceCPU: resource.MustParse("4")}
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"launcher:1"}}}

	want := node.DeepCopy()
	want.Annotations, want.Spec.Taints, want.Status.Images = nil, nil, nil
	delete(want.Labels, "zone")
	delete(want.Status.Allocatable, corev1.ResourceCPU)
	got, err := trimNode(node)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	plain := &corev1.Node{}
	plain.Labels, plain.Status.Allocatable = map[string]string{"zone": "a"}, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	got, err = trimNode(plain)
	if diff := cmp.Diff(&corev1.Node{}, got); err != nil || diff != "" {
		t.Errorf("of a node that has no guests: %v (-want +got)\n%s", err, diff)
	}
}

func TestOtherPodsAndObjectsAreKeptWhole(t *testing.T) {
	got, err := trimPod(podWith(layout.AttachmentContainer))
	if diff := cmp.Diff(podWith(layout.AttachmentContainer), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	volume := &cdiv1.DataVolume{}
	if got, err := trimPod(volume); got != any(volume) || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}
