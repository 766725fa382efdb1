package hotplug

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"drydock.dev/drydock/internal/contracts/layout"
)

// clientOf returns a client with these objects.
func clientOf(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, podIndex, func(o client.Object) []string { return []string{o.GetAnnotations()[v1.DomainAnnotation]} }).Build()
}

func labeled(name string, app, vmi string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = name, "ns", types.UID(name)
	pod.Labels = map[string]string{v1.AppLabel: app, v1.CreatedByLabel: vmi}
	pod.Annotations = map[string]string{v1.DomainAnnotation: "vm"}
	return pod
}

// TestNoAttachmentPodIsDeletedOnACachesWord has a loop whose cache shows no VMI although there is one. The pod must
// stay.
func TestNoAttachmentPodIsDeletedOnACachesWord(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name, vmi.Namespace, vmi.UID = "vm", "ns", "new"
	running := labeled("launcher", layout.LauncherApp, "old")
	ended := running.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	tests := map[string]struct {
		stored []client.Object
		left   []string
		again  bool
	}{
		"the API server knows the VMI: the cache lags":            {[]client.Object{vmi}, []string{"hp-new"}, false},
		"the VMI is gone, and the guest of the one before":        {[]client.Object{ended}, nil, false},
		"the VMI is gone, and the guest of the one before is not": {[]client.Object{running}, []string{"hp-old"}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			attachments := []client.Object{
				labeled("hp-new", layout.AttachmentApp, "new"), labeled("hp-old", layout.AttachmentApp, "old")}
			cache := clientOf(t, attachments...)
			r := &Reconciler{Client: cache, Reader: clientOf(t, append(test.stored, attachments...)...)}
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "vm"}})
			if err != nil {
				t.Fatal(err)
			}
			var pods corev1.PodList
			if err := cache.List(t.Context(), &pods); err != nil {
				t.Fatal(err)
			}
			var left []string
			for i := range pods.Items {
				left = append(left, pods.Items[i].Name)
			}
			if !slices.Equal(left, test.left) || result.RequeueAfter > 0 != test.again {
				t.Errorf("left are %q, looked at again: %v; want %q, %v", left, result.RequeueAfter > 0, test.left, test.again)
			}
		})
	}
}
