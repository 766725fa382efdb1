// Package components decides what the KubeVirt object changes of the objects that Drydock itself consists of: the
// deployments of virt-api and virt-controller, and the daemon set of virt-handler; whether the roles for users extend those of
// Kubernetes (aggregation.go); and what Prometheus's operator is told (monitoring.go).
//
// The manifests own these objects, and whoever applies them may do so at any time. This package owns only what the
// KubeVirt object says beside them, as server-side apply's Manager, and gives back what the manifests said when the
// KubeVirt object says nothing more (decision 590). It is pure: an object with its managed fields comes in, and what is
// to be applied goes out. It must not judge what admission can (package validate does).
package components

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	v1 "kubevirt.io/api/core/v1"
)

// Names of Drydock's workloads.
const (
	API        = "virt-api"
	Controller = "virt-controller"
	Handler    = "virt-handler"
)

// Manager is who applies what the KubeVirt object says, as the API server knows it. It is not virt-controller's own name,
// because that is also who updates other fields.
const Manager = "drydock-kubevirt-object"

// Deployment returns what is to be applied to the deployment that is there because of the KubeVirt object, which may be
// nil; nil if nothing is.
func Deployment(live *appsv1.Deployment, kv *v1.KubeVirt, types managedfields.TypeConverter) (*unstructured.Unstructured, error) {
	return plan(live, &appsv1.Deployment{}, appsv1.SchemeGroupVersion.WithKind("Deployment"), types, func(object runtime.Object) error {
		d, ok := object.(*appsv1.Deployment)
		if !ok || kv == nil {
			return nil
		}
		return configure(workload{name: live.Name, object: d, template: &d.Spec.Template, replicas: &d.Spec.Replicas}, &kv.Spec)
	})
}

// DaemonSet does so for a daemon set.
func DaemonSet(live *appsv1.DaemonSet, kv *v1.KubeVirt, types managedfields.TypeConverter) (*unstructured.Unstructured, error) {
	return plan(live, &appsv1.DaemonSet{}, appsv1.SchemeGroupVersion.WithKind("DaemonSet"), types, func(object runtime.Object) error {
		d, ok := object.(*appsv1.DaemonSet)
		if !ok || kv == nil {
			return nil
		}
		return configure(workload{name: live.Name, object: d, template: &d.Spec.Template}, &kv.Spec)
	})
}

// workload is the part of a workload that the KubeVirt object can change.
type workload struct {
	name     string
	object   runtime.Object
	template *corev1.PodTemplateSpec
	// replicas is nil where there is one pod for each node.
	replicas **int32
}

// configure changes what the manifests say of a workload to what the KubeVirt object says.
func configure(w workload, spec *v1.KubeVirtSpec) error {
	config := spec.Infra
	if w.name == Handler {
		config = spec.Workloads
	}
	if config != nil && config.Replicas != nil && w.replicas != nil {
		// Without virt-controller nobody would follow the KubeVirt object any more, and without virt-api nobody could
		// change it. Admission refuses 0, while it is there.
		*w.replicas = new(max(int32(*config.Replicas), 1))
	}
	pod := &w.template.Spec
	if config != nil && config.NodePlacement != nil {
		place(pod, config.NodePlacement)
	}
	pullImages(pod, spec)
	return customize(w, &spec.CustomizeComponents)
}

// pullImages says how the images of a workload's pods are got.
func pullImages(pod *corev1.PodSpec, spec *v1.KubeVirtSpec) {
	if policy := spec.ImagePullPolicy; policy != "" {
		for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
			for i := range containers {
				containers[i].ImagePullPolicy = policy
			}
		}
	}
	pod.ImagePullSecrets = union(pod.ImagePullSecrets, spec.ImagePullSecrets)
}

// union is list with what of more it lacks.
func union[T any](list, more []T) []T {
	known := map[string]bool{}
	var out []T
	for _, entry := range append(list[:len(list):len(list)], more...) {
		if text := fmt.Sprintf("%+v", entry); !known[text] {
			known[text] = true
			out = append(out, entry)
		}
	}
	return out
}
