//go:build apiserver

package controller

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

func (w *world) kubevirt() *v1.KubeVirt {
	w.t.Helper()
	var kv v1.KubeVirt
	w.do("reading the KubeVirt object", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: clusterconfig.Name}, &kv))
	return &kv
}

// seesKubeVirt waits until the loops have seen the KubeVirt object's present version.
func (w *world) seesKubeVirt() {
	w.t.Helper()
	wanted := w.kubevirt().Generation
	w.eventually("the loops to have seen the KubeVirt object", func() (bool, string) {
		seen := w.kubevirt().Status.ObservedGeneration
		return seen != nil && *seen >= wanted, fmt.Sprintf("its generation is %d, and they have not seen that", wanted)
	})
}

func (w *world) available() (status corev1.ConditionStatus, message string) {
	for _, c := range w.kubevirt().Status.Conditions {
		if c.Type == v1.KubeVirtConditionAvailable {
			return c.Status, c.Message
		}
	}
	return "", "there is no condition"
}

// workload makes one of Drydock's workloads, whose pods never run here.
func (w *world) workload(object client.Object, template *corev1.PodTemplateSpec, selector **metav1.LabelSelector) {
	w.t.Helper()
	labels := map[string]string{"app": object.GetName()}
	template.Labels = labels
	template.Spec.Containers = []corev1.Container{{Name: "c", Image: "example.com/none:1"}}
	// On a cluster with nodes, none may run it.
	template.Spec.NodeSelector = map[string]string{"example.com/nowhere": "true"}
	*selector = &metav1.LabelSelector{MatchLabels: labels}
	object.SetNamespace(w.namespace)
	w.do("creating "+object.GetName(), w.client.Create(w.ctx, object))
}

func TestKubeVirtSaysWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	kv := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Name: clusterconfig.Name, Namespace: w.namespace}}
	w.do("creating the KubeVirt object", w.client.Create(w.ctx, kv))
	w.eventually("the missing components to be named", func() (bool, string) {
		status, message := w.available()
		return status == corev1.ConditionFalse &&
			message == "virt-api does not exist; virt-controller does not exist; virt-handler does not exist", message
	})
	for _, name := range []string{"virt-api", "virt-controller"} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}}
		w.workload(d, &d.Spec.Template, &d.Spec.Selector)
	}
	h := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "virt-handler"}}
	w.workload(h, &h.Spec.Template, &h.Spec.Selector)
	w.eventually("the components without pods to be named", func() (bool, string) {
		status, message := w.available()
		return status == corev1.ConditionFalse &&
			message == "virt-api: 0 of 1 available; virt-controller: 0 of 1 available; virt-handler has no pod", message
	})
	if phase := w.kubevirt().Status.Phase; phase != v1.KubeVirtPhaseDeploying {
		t.Errorf("the phase is %s", phase)
	}
	w.awaitSettled()
}

func TestASettingIsInForceWithTheNextPod(t *testing.T) {
	w := newWorld(t)
	w.createVMI("hardware")
	if !w.asksForKVM(w.awaitLauncher("hardware")) {
		t.Error("without emulation a launcher must ask for KVM")
	}
	w.setEmulation(clusterconfig.Name, w.namespace, true)
	w.createVMI("emulated")
	if w.asksForKVM(w.awaitLauncher("emulated")) {
		t.Error("with emulation a launcher must not ask for KVM")
	}
}

// The object may have any name and namespace; of several, the one in the components' namespace counts.
func TestTheKubeVirtObjectMayBeElsewhere(t *testing.T) {
	w := newWorld(t)
	elsewhere := w.anotherNamespace()

	w.setEmulation("ours", elsewhere, true)
	t.Cleanup(func() {
		_ = w.client.Delete(w.cleanup(), &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Name: "ours", Namespace: elsewhere}})
	})
	w.createVMI("emulated")
	if w.asksForKVM(w.awaitLauncher("emulated")) {
		t.Error("the object in another namespace, with another name, has no effect")
	}
	w.setEmulation("theirs", w.namespace, false)
	w.createVMI("hardware")
	if !w.asksForKVM(w.awaitLauncher("hardware")) {
		t.Error("the object in the components' namespace does not go before the older one")
	}
}

func (w *world) setEmulation(name, namespace string, on bool) {
	w.t.Helper()
	kv := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	kv.Spec.Configuration.DeveloperConfiguration = &v1.DeveloperConfiguration{UseEmulation: on}
	w.do("creating the KubeVirt object", w.client.Create(w.ctx, kv))
	w.eventually("the loops to have seen it", func() (bool, string) {
		w.do("reading the KubeVirt object", w.client.Get(w.ctx, client.ObjectKeyFromObject(kv), kv))
		return kv.Status.Phase != "", "it has no status"
	})
}

func (w *world) asksForKVM(pod *corev1.Pod) bool {
	_, asks := pod.Spec.Containers[0].Resources.Limits[layout.ResourceKVM]
	return asks
}
