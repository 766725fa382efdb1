package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/policytest"
	"drydock.dev/drydock/internal/rules/datavolume"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplugpod"
)

// These tests judge writes by config/rbac/pod-policy.yaml, with the API server's own
// code.

var (
	virtController = &user.DefaultInfo{Name: "system:serviceaccount:kubevirt:kubevirt-controller"}
	tenant         = &user.DefaultInfo{Name: "tenant", Groups: []string{"system:authenticated"}}
	kubelet        = &user.DefaultInfo{Name: "system:node:node1", Groups: []string{"system:nodes"}}
	replicaSets    = &user.DefaultInfo{Name: "system:serviceaccount:kube-system:replicaset-controller"}
	collector      = &user.DefaultInfo{Name: "system:serviceaccount:kube-system:generic-garbage-collector"}
	administrator  = &user.DefaultInfo{Name: "admin", Groups: []string{"system:masters"}}
)

func podPolicy(t *testing.T) *policytest.Policy {
	t.Helper()
	return policytest.Load(t, "../../config/rbac/pod-policy.yaml", "drydock-pods")
}

func anInstance() *v1.VirtualMachineInstance {
	return &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "9f4c"}}
}

func attachmentPod() *corev1.Pod {
	pod := hotplugpod.Render(hotplugpod.Input{
		VMI: anInstance(), Launcher: &corev1.Pod{}, Image: layout.DevelLauncherImage,
		AttachmentPod: hotplug.AttachmentPod{Name: hotplugpod.Prefix(anInstance()) + "-1", Volumes: []hotplug.Volume{{Name: "a", Claim: "data"}}},
	})
	return pod
}

func plainPod() *corev1.Pod {
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	pod.Namespace, pod.Name, pod.Labels = "shop", "web", map[string]string{"app": "web"}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "nginx"}}
	return pod
}

func labeled(pod *corev1.Pod, key, value string) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Labels[key] = value
	return pod
}

// GHSA-9m94-w2vq-hcf9: a pod with the launcher's labels is taken for a launcher.
func TestGHSA9m94w2vqhcf9NobodyButVirtControllerMakesPodsWithItsLabels(t *testing.T) {
	policy := podPolicy(t)
	forged := attachmentPod()
	forged.Spec.Containers[0].Image = "evil/device-nodes"
	for what, pod := range map[string]*corev1.Pod{
		"an attachment pod":           attachmentPod(),
		"one with an image of theirs": forged,
		"the launcher's app label":    labeled(plainPod(), v1.AppLabel, layout.LauncherApp),
		"a worker's app label":        labeled(plainPod(), v1.AppLabel, datavolume.WorkerAppLabel),
		"a VMI's UID":                 labeled(plainPod(), v1.CreatedByLabel, "9f4c"),
	} {
		for _, by := range []user.Info{tenant, kubelet, replicaSets, administrator} {
			if got := policy.Answer(t, policytest.Write{By: by, Resource: "pods", New: pod}); !strings.Contains(got, "only virt-controller may create") {
				t.Errorf("%s made by %s: answered %q", what, by.GetName(), got)
			}
		}
		if got := policy.Answer(t, policytest.Write{By: virtController, Resource: "pods", New: pod}); got != "" {
			t.Errorf("%s made by virt-controller: answered %q", what, got)
		}
	}
	for what, pod := range map[string]*corev1.Pod{
		"a tenant's own pod":             plainPod(),
		"a pod of virt-handler's":        labeled(plainPod(), v1.AppLabel, "virt-handler"),
		"the label that Services select": labeled(plainPod(), v1.DeprecatedVirtualMachineNameLabel, "web"),
	} {
		if got := policy.Answer(t, policytest.Write{By: tenant, Resource: "pods", New: pod}); got != "" {
			t.Errorf("%s: answered %q", what, got)
		}
	}
}

func TestNobodyRelabelsDrydocksPodsOrChangesTheirImages(t *testing.T) {
	policy := podPolicy(t)
	labels, images := "may change the labels", "images of Drydock's pods"
	for what, tc := range map[string]struct {
		by       user.Info
		resource string
		old      *corev1.Pod
		change   func(*corev1.Pod)
		refused  string
	}{
		"a tenant's pod gets the launcher's label": {tenant, "pods", plainPod(),
			func(p *corev1.Pod) { p.Labels[v1.AppLabel] = layout.LauncherApp }, labels},
		"a tenant's pod gets a VMI's UID": {tenant, "pods", plainPod(),
			func(p *corev1.Pod) { p.Labels[v1.CreatedByLabel] = "9f4c" }, labels},
		"the same by way of the status": {tenant, "pods/status", plainPod(),
			func(p *corev1.Pod) { p.Labels[v1.CreatedByLabel] = "9f4c" }, labels},
		"an attachment pod is given to another VMI": {tenant, "pods", attachmentPod(),
			func(p *corev1.Pod) { p.Labels[v1.CreatedByLabel] = "other" }, labels},
		"an attachment pod loses its label": {tenant, "pods", attachmentPod(),
			func(p *corev1.Pod) { delete(p.Labels, v1.AppLabel) }, labels},
		"all labels are taken away": {administrator, "pods", attachmentPod(),
			func(p *corev1.Pod) { p.Labels = nil }, labels},
		"another image": {tenant, "pods", attachmentPod(),
			func(p *corev1.Pod) { p.Spec.Containers[0].Image = "evil" }, images},
		"another image of an init container": {tenant, "pods", attachmentPod(),
			func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "evil"}} }, images},
		"a container is added": {tenant, "pods/ephemeralcontainers", attachmentPod(),
			func(p *corev1.Pod) {
				p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Image: "evil"}}}
			}, images},

		"another label of a launcher": {tenant, "pods", attachmentPod(),
			func(p *corev1.Pod) { p.Labels["team"] = "a" }, ""},
		"an annotation": {tenant, "pods", attachmentPod(),
			func(p *corev1.Pod) { p.Annotations["a"] = "b" }, ""},
		"the kubelet's report": {kubelet, "pods/status", attachmentPod(),
			func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, ""},
		"the garbage collector lets go of an owner": {collector, "pods", attachmentPod(),
			func(p *corev1.Pod) { p.OwnerReferences = nil }, ""},
		"a gate that was opened": {tenant, "pods", attachmentPod(),
			func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} }, ""},
		"virt-controller's own changes": {virtController, "pods", attachmentPod(),
			func(p *corev1.Pod) { p.Spec.Containers[0].Image = "newer" }, ""},
		"another image of a tenant's own pod": {tenant, "pods", plainPod(),
			func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" }, ""},
		"a container added to a tenant's own pod": {tenant, "pods/ephemeralcontainers", plainPod(),
			func(p *corev1.Pod) { p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}} }, ""},
	} {
		after := tc.old.DeepCopy()
		tc.change(after)
		got := policy.Answer(t, policytest.Write{By: tc.by, Resource: tc.resource, Old: tc.old, New: after})
		if (got == "") != (tc.refused == "") || !strings.Contains(got, tc.refused) {
			t.Errorf("%s: answered %q, want %q", what, got, tc.refused)
		}
	}
}
