package controller

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/policytest"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugpod"
	"drydock.dev/drydock/internal/rules/pod/podlabels"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
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

type podPolicies []*policytest.Policy

func podPolicy(t *testing.T) podPolicies {
	t.Helper()
	const manifest = "../../config/rbac/pod-policy.yaml"
	return podPolicies{policytest.Load(t, manifest, "drydock-pods"), policytest.Load(t, manifest, "drydock-pod-labels")}
}

// Answer returns the reason why a write is refused, or "".
func (p podPolicies) Answer(t testing.TB, w policytest.Write) string {
	t.Helper()
	said := ""
	for _, policy := range p {
		said += policy.Answer(t, w)
	}
	return said
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

// GHSA-9m94-w2vq-hcf9: a tenant's pod with the launcher's labels was taken for a launcher.
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
	labels, images := "may change the labels of Drydock's pods", "images of Drydock's pods"
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

func aLauncherPod() *corev1.Pod {
	pod := attachmentPod()
	pod.Labels[v1.AppLabel] = layout.LauncherApp
	for _, key := range podlabels.Labels() {
		if _, there := pod.Labels[key]; !there {
			pod.Labels[key] = "x"
		}
	}
	pod.Labels[layout.ClaimLabel("data")] = ""
	for _, key := range podlabels.Annotations() {
		pod.Annotations[key] = "x"
	}
	return pod
}

// TestNobodyChangesWhatRulesGoBy removes, changes and adds each label and annotation that rules read, on pods of
// each kind: the policy's lists must be package podlabels'.
func TestNobodyChangesWhatRulesGoBy(t *testing.T) {
	policy := podPolicy(t)
	edits := map[string]func(set map[string]string, key string){
		"taken off": func(set map[string]string, key string) { delete(set, key) },
		"changed":   func(set map[string]string, key string) { set[key] = "another" },
	}
	plain := attachmentPod()
	for _, app := range []string{layout.LauncherApp, layout.AttachmentApp, datavolume.WorkerAppLabel, layout.MaintenanceApp} {
		whole := aLauncherPod()
		whole.Labels[v1.AppLabel] = app
		for _, key := range append(podlabels.Labels(), layout.ClaimLabel("data")) {
			for what, edit := range edits {
				after := whole.DeepCopy()
				edit(after.Labels, key)
				refused(t, policy, whole, after, "may change the labels of Drydock's pods", app+": the label "+key+" "+what)
			}
		}
		for _, key := range podlabels.Annotations() {
			for what, edit := range edits {
				after := whole.DeepCopy()
				edit(after.Annotations, key)
				refused(t, policy, whole, after, "may change the annotations", app+": the annotation "+key+" "+what)
			}
		}
	}
	refused(t, policy, plain, labeled(plain, layout.ClaimLabel("more"), ""), "may change the labels", "a claim is put on")
	refused(t, policy, plain, labeled(plain, layout.MaintenanceForLabel, "web"), "may change the labels", "it becomes a maintenance pod")
	text, err := os.ReadFile("../../config/rbac/pod-policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	labels := append(podlabels.Labels(), podlabels.Prefix)
	for _, quoted := range regexp.MustCompile(`"([a-z.]+(/[A-Za-z.-]*)?)"`).FindAllStringSubmatch(string(text[bytes.Index(text, []byte("variables.changed.all")):]), -1) {
		if key := quoted[1]; !slices.Contains(labels, key) && !slices.Contains(podlabels.Annotations(), key) {
			t.Errorf("the policy keeps %s as it is, by which no rule goes", key)
		}
	}
}

func refused(t *testing.T, policy podPolicies, before, after *corev1.Pod, why, what string) {
	t.Helper()
	for _, resource := range []string{"pods", "pods/status"} {
		if got := policy.Answer(t, policytest.Write{By: tenant, Resource: resource, Old: before, New: after}); !strings.Contains(got, why) {
			t.Errorf("%s by way of %s: answered %q", what, resource, got)
		}
	}
	if got := policy.Answer(t, policytest.Write{By: virtController, Resource: "pods", Old: before, New: after}); got != "" {
		t.Errorf("%s by virt-controller: answered %q", what, got)
	}
}
