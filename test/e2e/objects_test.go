//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
)

// deleteObject deletes an object, if it exists.
func deleteObject(t *testing.T, obj client.Object) {
	t.Helper()
	err := cluster.client.Delete(context.Background(), obj)
	if err != nil && !errors.IsNotFound(err) {
		t.Errorf("deleting %s: %v", obj.GetName(), err)
	}
}

// launcherPods returns the pods of a VMI, also those that ended.
func launcherPods(t *testing.T, vmi *v1.VirtualMachineInstance) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	if err := cluster.client.List(t.Context(), &pods, client.InNamespace(vmi.Namespace),
		client.MatchingLabels{v1.CreatedByLabel: string(vmi.UID), v1.AppLabel: layout.LauncherApp}); err != nil {
		t.Fatalf("listing the launcher pods of %s: %v", vmi.Name, err)
	}
	return pods.Items
}

func launcherPod(t *testing.T, vmi *v1.VirtualMachineInstance) *corev1.Pod {
	t.Helper()
	pods := launcherPods(t, vmi)
	if len(pods) != 1 {
		t.Fatalf("%s has %d launcher pods, want 1", vmi.Name, len(pods))
	}
	return &pods[0]
}

// virtctl must succeed.
func do(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	out, err := virtctl(t.Context(), append([]string{"-n", namespace}, args...)...)
	if err != nil {
		t.Fatalf("virtctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

func instanceUID(t *testing.T, namespace, name string) types.UID {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, vmi); err != nil {
		t.Fatalf("reading the VMI %s: %v", name, err)
	}
	return vmi.UID
}

func restartAndAwait(t *testing.T, namespace, name string) {
	t.Helper()
	before := instanceUID(t, namespace, name)
	do(t, namespace, "restart", name)
	awaitNextInstance(t, namespace, name, before)
}

func awaitNextInstance(t *testing.T, namespace, name string, before types.UID) {
	t.Helper()
	awaitVMI(t, namespace, name, "another instance that runs", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.UID != before && vmi.Status.Phase == v1.Running
	})
}

// objectFor returns a VMI with only its name, to wait for it.
func objectFor(namespace, name string) *v1.VirtualMachineInstance {
	return &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}
