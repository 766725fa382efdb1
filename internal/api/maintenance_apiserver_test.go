//go:build apiserver

package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/maintenance"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

// maintenance makes maintenance pods by the subresource, of a VMI without a VM and of a VM, and ends them.
func (w *world) maintenance(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "maintained"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	claim.Spec.StorageClassName = new("nobodys")
	must(t, w.admin.Create(t.Context(), claim))
	vmi := w.vmi("lone")
	vmi.Spec.StartStrategy = new(lock.StartStrategy)
	source := &v1.PersistentVolumeClaimVolumeSource{}
	source.ClaimName = claim.Name
	vmi.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "root"}}
	vmi.Spec.NodeSelector = map[string]string{"disks": "fast"}
	must(t, w.admin.Create(t.Context(), vmi))
	vm := w.vm("halted")
	must(t, w.admin.Create(t.Context(), vm))

	t.Run("of a VMI", func(t *testing.T) { w.maintainInstance(t, vmi, claim.Name) })
	t.Run("what is refused", w.refusesMaintenance)
}

func (w *world) maintainInstance(t *testing.T, vmi *v1.VirtualMachineInstance, claim string) {
	path := w.subresource("virtualmachineinstances", vmi.Name, "maintenance")
	state := w.maintenanceState(t, http.MethodPost, path, `{"image":"example.com/tools:1","command":["sleep","60"],"readOnly":true}`)
	if state.Created == nil {
		t.Fatalf("the answer names no pod: %+v", state)
	}
	pod := &corev1.Pod{}
	must(t, w.admin.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: state.Created.Name}, pod))
	t.Cleanup(func() { w.removeMaintenancePod(t, pod) })
	completeMaintenancePod(t, vmi, pod, claim)
	if state = w.maintenanceState(t, http.MethodGet, path, ""); len(state.Queue) != 1 || state.Queue[0].Name != pod.Name {
		t.Errorf("the queue is %+v, want the pod %s", state.Queue, pod.Name)
	}
	w.maintenanceState(t, http.MethodDelete, path+"?pod="+pod.Name, "")
	must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	if pod.DeletionTimestamp == nil {
		t.Error("the pod that was released is not being deleted")
	}
}

// completeMaintenancePod checks a pod that reads the disk "root" of a VMI.
func completeMaintenancePod(t *testing.T, vmi *v1.VirtualMachineInstance, pod *corev1.Pod, claim string) {
	t.Helper()
	mount := pod.Spec.Containers[0].VolumeMounts
	switch {
	case !lock.Gated(pod) || !lock.Kept(pod) || lock.For(pod) != vmi.Name:
		t.Errorf("gates %v, finalizers %v, labels %v", pod.Spec.SchedulingGates, pod.Finalizers, pod.Labels)
	case pod.Labels[v1.AppLabel] != layout.MaintenanceApp || !slices.Equal(lock.Claims(pod), []string{claim}):
		t.Errorf("labels %v, claims %v", pod.Labels, lock.Claims(pod))
	case len(pod.OwnerReferences) != 1 || pod.OwnerReferences[0].UID != vmi.UID || pod.OwnerReferences[0].Kind != "VirtualMachineInstance":
		t.Errorf("its owners are %+v", pod.OwnerReferences)
	case len(mount) != 1 || mount[0].MountPath != "/disks/root" || !mount[0].ReadOnly:
		t.Errorf("it has the disks %+v", mount)
	case pod.Spec.NodeSelector["disks"] != "fast" || !slices.Equal(pod.Spec.Containers[0].Command, []string{"sleep", "60"}):
		t.Errorf("node selector %v, command %v", pod.Spec.NodeSelector, pod.Spec.Containers[0].Command)
	}
}

func (w *world) maintenanceState(t *testing.T, method, path, body string) maintenance.State {
	t.Helper()
	answer, err := w.call(method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	state := maintenance.State{}
	must(t, json.Unmarshal([]byte(answer), &state))
	return state
}

// removeMaintenancePod plays virt-controller.
func (w *world) removeMaintenancePod(t *testing.T, pod *corev1.Pod) {
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	virtController := w.component("kubevirt-controller")
	if err := virtController.Patch(w.t.Context(), pod, patch); client.IgnoreNotFound(err) != nil {
		t.Errorf("letting the pod %s go: %v", pod.Name, err)
	}
}

// refusesMaintenance makes requests that must be refused.
func (w *world) refusesMaintenance(t *testing.T) {
	lone := w.subresource("virtualmachineinstances", "lone", "maintenance")
	for name, c := range map[string]struct{ method, path, body, says string }{
		"a volume that it does not have": {http.MethodPost, lone, `{"disks":["other"]}`, `the VM has no volume "other"; on claims are: root`},
		"no VMI":                         {http.MethodPost, w.subresource("virtualmachineinstances", "nobody", "maintenance"), "{}", `"nobody" not found`},
		"a VM without claims":            {http.MethodPost, w.subresource("virtualmachines", "halted", "maintenance"), "{}", "none of the VM's disks is on a PersistentVolumeClaim"},
		"no such field":                  {http.MethodPost, lone, `{"volumes":["root"]}`, "volumes"},
		"the release of nothing":         {http.MethodDelete, lone + "?force=true", "", "not locked for maintenance"},
	} {
		if _, err := w.call(c.method, c.path, c.body); err == nil || !strings.Contains(sentence(err), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// maintainersCalls calls the subresource as users of the shipped roles: the authorizer must be asked for exactly that
// call. An authorized user who names a missing VMI must be told so.
func (w *world) maintainersCalls(t *testing.T) {
	for _, resource := range []string{"virtualmachines", "virtualmachineinstances"} {
		path := w.subresource(resource, "nobody", "maintenance")
		for _, c := range []struct {
			method, path string
			may          []string
		}{
			{http.MethodGet, path, []string{"m-admin", "m-editor", "m-viewer"}},
			{http.MethodPost, path, []string{"m-admin", "m-editor"}},
			{http.MethodDelete, path, []string{"m-admin", "m-editor"}},
			{http.MethodDelete, path + "?force=true", []string{"m-admin"}},
		} {
			for user := range migrators {
				config := rest.CopyConfig(w.config)
				config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
				_, err := callAs(t.Context(), config, c.method, c.path, "")
				if may := slices.Contains(c.may, user); apierrors.IsForbidden(err) == may || may && !apierrors.IsNotFound(err) {
					t.Errorf("%s calls %s %s: %v", user, c.method, c.path, err)
				}
			}
		}
	}
}
