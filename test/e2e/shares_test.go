//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Given a guest that shares a folder of a claim with a pod, and one of a ConfigMap: both see each other's files, the guest
// sees a change of the ConfigMap, and its open files go on after a migration. Only the kubelet's mounts, their owners
// and a confined virtiofsd show that.
func TestAGuestSharesFoldersWithPods(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	data := claimOfClass(ns, "data", classShared, corev1.PersistentVolumeFilesystem)
	data.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "settings"}, Data: map[string]string{"color": "blue"}}
	pod := toolsPod(ns, "beside")
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	create(t, data)
	create(t, settings)
	create(t, pod)
	vm := newMigratableVM(t, ns, "sharing")
	spec := &vm.Spec.Template.Spec
	for name, source := range map[string]v1.VolumeSource{
		"data": {PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}},
		"settings": {ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
	} {
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
		spec.Domain.Devices.Filesystems = append(spec.Domain.Devices.Filesystems, v1.Filesystem{Name: name, Virtiofs: &v1.FilesystemVirtiofs{}})
	}
	awaitPodRunning(t, ns, "beside")
	beside := func(command string) string {
		t.Helper()
		out, err := kubectl(t.Context(), "-n", ns, "exec", "beside", "--", "busybox", "sh", "-c", command)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	g := bootVM(t, vm)
	bootID := g.bootID()
	g.run("mkdir /data /settings && mount -t virtiofs data /data && mount -t virtiofs settings /settings")
	g.run("echo from the guest > /data/greeting && sync")
	if got := beside("cat /data/greeting; echo from the pod > /data/answer"); got != "from the guest\n" {
		t.Errorf("the pod reads %q", got)
	}
	if got := g.run("cat /data/answer"); got != "from the pod" {
		t.Errorf("the guest reads %q", got)
	}
	if got := g.run("cat /settings/color"); got != "blue" {
		t.Errorf("the guest reads the ConfigMap's color %q", got)
	}
	g.run("exec 7>>/data/journal && echo before >&7")

	moved := migrated(t, ns, "sharing")
	awaitOneLauncher(t, moved, moved.Status.NodeName)
	g = login(t, ns, "sharing")
	if g.bootID() != bootID {
		t.Error("the guest has been started again")
	}
	settings.Data["color"] = "red"
	if err := cluster.client.Update(t.Context(), settings, &client.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.run("echo after >&7; sync")
	if got := beside("cat /data/journal"); got != "before\nafter\n" {
		t.Errorf("the pod reads the journal %q", got)
	}
	eventually(t, "the change of the ConfigMap in the guest", func(context.Context) error {
		if got, err := g.try("cat /settings/color"); err != nil || got != "red" {
			return fmt.Errorf("the guest reads %q: %w", got, err)
		}
		return nil
	})
}
