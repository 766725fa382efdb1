// Package components decides the changes that the KubeVirt object makes to Drydock's own objects: the deployments of
// virt-api and virt-controller and the daemon set of virt-handler, the aggregation of the user roles, and the objects
// for Prometheus's operator.
//
// The manifests own these objects and may be applied at any time. This package owns only the fields that the KubeVirt
// object sets, as server-side apply's Manager, and restores the manifests' values when the KubeVirt object no longer
// sets them (decision 590). It turns an object with its managed fields into an apply configuration. It must not
// validate for admission (package validate does).
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

// Manager is the field manager of the KubeVirt object's settings; virt-controller's own name updates other fields too.
const Manager = "drydock-kubevirt-object"

// Deployment returns the apply configuration for the live deployment, nil for none; kv may be nil.
func Deployment(live *appsv1.Deployment, kv *v1.KubeVirt, types managedfields.TypeConverter) (*unstructured.Unstructured, error) {
	return plan(live, &appsv1.Deployment{}, appsv1.SchemeGroupVersion.WithKind("Deployment"), types, func(object runtime.Object) error {
		d, ok := object.(*appsv1.Deployment)
		if !ok || kv == nil {
			return nil
		}
		return configure(workload{name: live.Name, object: d, template: &d.Spec.Template, replicas: &d.Spec.Replicas}, &kv.Spec)
	})
}

// DaemonSet is Deployment for a daemon set.
func DaemonSet(live *appsv1.DaemonSet, kv *v1.KubeVirt, types managedfields.TypeConverter) (*unstructured.Unstructured, error) {
	return plan(live, &appsv1.DaemonSet{}, appsv1.SchemeGroupVersion.WithKind("DaemonSet"), types, func(object runtime.Object) error {
		d, ok := object.(*appsv1.DaemonSet)
		if !ok || kv == nil {
			return nil
		}
		return configure(workload{name: live.Name, object: d, template: &d.Spec.Template}, &kv.Spec)
	})
}

type workload struct {
	name     string
	object   runtime.Object
	template *corev1.PodTemplateSpec
	// replicas is nil for a daemon set.
	replicas **int32
}

func configure(w workload, spec *v1.KubeVirtSpec) error {
	config := spec.Infra
	if w.name == Handler {
		config = spec.Workloads
	}
	if config != nil && config.Replicas != nil && w.replicas != nil {
		// Nothing follows the KubeVirt object without virt-controller, and nobody can change it without virt-api.
		// Admission refuses 0 while it is available.
		*w.replicas = new(max(int32(*config.Replicas), 1))
	}
	pod := &w.template.Spec
	if config != nil && config.NodePlacement != nil {
		place(pod, config.NodePlacement)
	}
	if policy := spec.ImagePullPolicy; policy != "" {
		for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
			for i := range containers {
				containers[i].ImagePullPolicy = policy
			}
		}
	}
	pod.ImagePullSecrets = union(pod.ImagePullSecrets, spec.ImagePullSecrets)
	return customize(w, &spec.CustomizeComponents)
}

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
