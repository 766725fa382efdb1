//go:build apiserver

package controller

import (
	"fmt"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/cluster/components"
)

// Nothing runs: no node has the label.
func (w *world) deploy(change func(*unstructured.Unstructured)) {
	w.t.Helper()
	files, err := filepath.Glob("../../config/deploy/*.yaml")
	w.do("finding the manifests", err)
	for _, file := range files {
		for _, object := range w.manifest(file) {
			if kind := object.GetKind(); kind != "Deployment" && kind != "DaemonSet" {
				continue
			}
			object.SetNamespace(w.namespace)
			w.do("choosing no node", unstructured.SetNestedField(object.Object, "true", "spec", "template", "spec", "nodeSelector", "example.com/nowhere"))
			if change != nil {
				change(object)
			}
			w.do("applying "+object.GetName(), w.client.Apply(w.ctx, client.ApplyConfigurationFromUnstructured(object),
				client.FieldOwner("kubectl"), client.ForceOwnership))
		}
	}
}

func (w *world) apiDeployment() *appsv1.Deployment {
	w.t.Helper()
	var d appsv1.Deployment
	w.do("reading virt-api", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: components.API}, &d))
	return &d
}

func (w *world) handlerDaemonSet() *appsv1.DaemonSet {
	w.t.Helper()
	var d appsv1.DaemonSet
	w.do("reading virt-handler", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: components.Handler}, &d))
	return &d
}

// say changes the KubeVirt object.
func (w *world) say(change func(*v1.KubeVirtSpec)) {
	w.t.Helper()
	kv := w.kubevirt()
	before := kv.DeepCopy()
	change(&kv.Spec)
	w.do("changing the KubeVirt object", w.client.Patch(w.ctx, kv, client.MergeFrom(before)))
}

func (w *world) synchronized() (status corev1.ConditionStatus, message string) {
	for _, c := range w.kubevirt().Status.Conditions {
		if c.Type == v1.KubeVirtConditionSynchronized {
			return c.Status, c.Message
		}
	}
	return "", "there is no condition"
}

// patchesOfWorkloads counts the loops' writes to workloads.
func (w *world) patchesOfWorkloads() int {
	n := 0
	for _, line := range w.writes.of(w.namespace) {
		if line == "PATCH deployments" || line == "PATCH daemonsets" {
			n++
		}
	}
	return n
}

func TestTheKubeVirtObjectConfiguresTheWorkloads(t *testing.T) {
	w := newWorld(t)
	w.deploy(nil)
	kv := &v1.KubeVirt{}
	kv.Name, kv.Namespace = clusterconfig.Name, w.namespace
	w.do("creating the KubeVirt object", w.client.Create(w.ctx, kv))
	w.eventually("the loops to have seen it", func() (bool, string) {
		status, message := w.synchronized()
		return status == corev1.ConditionTrue, message
	})
	if n := w.patchesOfWorkloads(); n != 0 {
		t.Errorf("the workloads were written %d times, though the KubeVirt object says nothing of them", n)
	}
	before := w.apiDeployment()
	w.say(func(s *v1.KubeVirtSpec) {
		s.ImagePullPolicy = corev1.PullAlways
		s.Infra = &v1.ComponentConfig{Replicas: new(uint8(3)), NodePlacement: &v1.NodePlacement{NodeSelector: map[string]string{"infra": "yes"}}}
		s.Workloads = &v1.ComponentConfig{NodePlacement: &v1.NodePlacement{NodeSelector: map[string]string{"guests": "yes"}}}
	})
	w.awaitConfigured(3)
	w.awaitSettled()
	if n := w.patchesOfWorkloads(); n != 3 {
		t.Errorf("the workloads were written %d times, want once each", n)
	}
	// The next leader must have nothing to do.
	w.stop()
	w.startLoops()
	w.awaitSettled()
	if n := w.patchesOfWorkloads(); n != 3 {
		t.Errorf("another leader wrote the workloads: %d times in all", n)
	}
	// A newer release.
	w.deploy(func(o *unstructured.Unstructured) {
		w.do("changing the manifest", unstructured.SetNestedField(o.Object, "newer", "metadata", "labels", "release"))
	})
	w.awaitConfigured(3)
	w.awaitSettled()
	// Without the object the manifests apply.
	w.do("deleting the KubeVirt object", w.client.Delete(w.ctx, w.kubevirt()))
	w.eventually("what the manifests say", func() (bool, string) {
		d := w.apiDeployment()
		_, infra := d.Spec.Template.Spec.NodeSelector["infra"]
		return *d.Spec.Replicas == *before.Spec.Replicas && !infra && d.Labels["release"] == "newer", fmt.Sprintf("%+v", d.Spec)
	})
	w.awaitSettled()
}

func (w *world) awaitConfigured(replicas int32) {
	w.t.Helper()
	w.eventually("what the KubeVirt object says", func() (bool, string) {
		d, h := w.apiDeployment().Spec, w.handlerDaemonSet().Spec.Template.Spec
		pod := d.Template.Spec
		return *d.Replicas == replicas && pod.NodeSelector["infra"] == "yes" && pod.Containers[0].ImagePullPolicy == corev1.PullAlways &&
			h.NodeSelector["guests"] == "yes" && h.InitContainers[0].ImagePullPolicy == corev1.PullAlways, fmt.Sprintf("%+v\n%+v", d, h)
	})
}

func TestWhatTheAPIServerRefusesIsTold(t *testing.T) {
	w := newWorld(t)
	w.deploy(nil)
	kv := &v1.KubeVirt{}
	kv.Name, kv.Namespace = clusterconfig.Name, w.namespace
	// Where virt-api runs, admission refuses it.
	kv.Spec.Infra = &v1.ComponentConfig{NodePlacement: &v1.NodePlacement{NodeSelector: map[string]string{"no label": "x"}}}
	w.do("creating the KubeVirt object", w.client.Create(w.ctx, kv))
	w.eventually("the refusal to be told", func() (bool, string) {
		status, message := w.synchronized()
		return status == corev1.ConditionFalse, message
	})
	w.awaitSettled()
	w.say(func(s *v1.KubeVirtSpec) { s.Infra = nil })
	w.eventually("all to be well", func() (bool, string) {
		status, message := w.synchronized()
		return status == corev1.ConditionTrue, message
	})
}

func TestPatchesOfTheKubeVirtObject(t *testing.T) {
	w := newWorld(t)
	w.deploy(nil)
	patch := func(text string) []v1.CustomizeComponentsPatch {
		return []v1.CustomizeComponentsPatch{{ResourceName: components.API, ResourceType: "Deployment", Type: v1.StrategicMergePatchType, Patch: text}}
	}
	kv := &v1.KubeVirt{}
	kv.Name, kv.Namespace = clusterconfig.Name, w.namespace
	kv.Spec.CustomizeComponents.Patches = patch(`{"spec":{"template":{"spec":{"containers":[{"name":"virt-api","resources":{"requests":{"memory":"1024Mi"}}}]}}}}`)
	w.do("creating the KubeVirt object", w.client.Create(w.ctx, kv))
	memory := func() string {
		return w.apiDeployment().Spec.Template.Spec.Containers[0].Resources.Requests.Memory().String()
	}
	w.eventually("the patch", func() (bool, string) { return memory() == "1Gi", memory() })
	w.awaitSettled()
	before := w.apiDeployment().Generation
	w.say(func(s *v1.KubeVirtSpec) {
		s.CustomizeComponents.Patches = patch(`{"spec":{"replicas":5,"template":{"spec":{"serviceAccountName":"kubevirt-handler"}}}}`)
	})
	w.eventually("the refusal to be told", func() (bool, string) {
		status, message := w.synchronized()
		return status == corev1.ConditionFalse && message == "virt-api: the KubeVirt object can't set .spec.template.spec.serviceAccountName; change the manifest", message
	})
	if after := w.apiDeployment().Generation; after != before {
		t.Errorf("a patch that gives rights was applied in part: generation %d, then %d", before, after)
	}
	w.say(func(s *v1.KubeVirtSpec) { s.CustomizeComponents.Patches = nil })
	w.eventually("what the manifest says", func() (bool, string) { return memory() == "80Mi", memory() })
}
