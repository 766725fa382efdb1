//go:build e2e

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
)

// forgedPodsAreRefused tries, as a pod author, to create a pod that passes for one of a VM's, and to change one of a
// VM's pods into something else. Both must be refused; the usual edits of a pod author must succeed.
func forgedPodsAreRefused(t *testing.T, vmi *v1.VirtualMachineInstance) {
	t.Helper()
	ns := vmi.Namespace
	launcher := launcherPod(t, vmi)

	for what, labels := range map[string]map[string]string{
		"an attachment pod": {v1.AppLabel: layout.AttachmentApp, v1.CreatedByLabel: string(vmi.UID)},
		"a launcher pod":    {v1.AppLabel: layout.LauncherApp},
		"a VMI's UID":       {v1.CreatedByLabel: string(vmi.UID)},
	} {
		forged := toolsPod(ns, "forged")
		forged.Labels = labels
		refusedByPolicy(t, what, cluster.client.Create(t.Context(), forged))
	}
	for what, change := range map[string]func(*corev1.Pod){
		"another VMI's launcher": func(p *corev1.Pod) { p.Labels[v1.CreatedByLabel] = "another" },
		"no launcher any more":   func(p *corev1.Pod) { delete(p.Labels, v1.AppLabel) },
		"another image":          func(p *corev1.Pod) { p.Spec.Containers[0].Image = "evil" },
	} {
		changed := launcher.DeepCopy()
		change(changed)
		refusedByPolicy(t, what, cluster.client.Patch(t.Context(), changed, client.MergeFrom(launcher)))
	}
	debugged := launcher.DeepCopy()
	debugged.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "evil", ImagePullPolicy: corev1.PullNever},
	}}
	refusedByPolicy(t, "a container more", cluster.client.SubResource("ephemeralcontainers").Patch(t.Context(), debugged, client.MergeFrom(launcher)))

	own := toolsPod(ns, "own")
	create(t, own)
	labeled := own.DeepCopy()
	labeled.Labels = map[string]string{"app": "mine"}
	if err := cluster.client.Patch(t.Context(), labeled, client.MergeFrom(own)); err != nil {
		t.Errorf("a label of one's own pod: %v", err)
	}
	refusedByPolicy(t, "one's own pod made a launcher", cluster.client.Patch(t.Context(), func() *corev1.Pod {
		changed := labeled.DeepCopy()
		changed.Labels[v1.AppLabel] = layout.LauncherApp
		return changed
	}(), client.MergeFrom(labeled)))
	noted := launcher.DeepCopy()
	noted.Labels["team"] = "a"
	if err := cluster.client.Patch(t.Context(), noted, client.MergeFrom(launcher)); err != nil {
		t.Errorf("a label of another kind: %v", err)
	}
}

func refusedByPolicy(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'drydock-pod") {
		t.Errorf("%s: answered %v, want a refusal by the policies of pods", what, err)
	}
}
