package datavolume

import (
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// A source pod or a restored claim in another namespace than its DataVolume's has no owner reference. The finalizer, by
// which it is deleted first, is no proof of that: whoever may change the DataVolume can remove it.

// MadeFor returns the DataVolume for which a source pod or a restored claim was made. Any tenant can write a claim's
// annotations, so only the UID in its name shows its maker.
func MadeFor(object metav1.Object) (dv types.NamespacedName, uid types.UID, ok bool) {
	suffix := sourceSuffix
	if _, is := object.(*corev1.PersistentVolumeClaim); is {
		suffix = restoredSuffix
	}
	id, named := strings.CutSuffix(object.GetName(), suffix)
	dv, ok = Target(object)
	return dv, types.UID(id), ok && named && uuid.Validate(id) == nil
}

// Target returns the DataVolume that an object's annotation names.
func Target(object metav1.Object) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(object.GetAnnotations()[AnnTarget], "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}

// MayBeLeft reports whether a pod or claim is to be deleted when its DataVolume, that of MadeFor, does not exist.
func MayBeLeft(object metav1.Object) bool {
	ours := object.GetLabels()[LabelApp] == LabelAppValue
	if _, is := object.(*corev1.Pod); is {
		ours = object.GetLabels()[v1.AppLabel] == WorkerAppLabel
	}
	_, _, made := MadeFor(object)
	return made && ours && metav1.GetControllerOf(object) == nil
}

// IsWorkerOf reports whether a pod of a worker's name is the DataVolume's. A tenant may choose a pod's name and owners,
// but only virt-controller gives it the label (config/rbac/pod-policy.yaml).
func IsWorkerOf(dv *cdiv1.DataVolume, pod *corev1.Pod) bool {
	return pod.Labels[v1.AppLabel] == WorkerAppLabel && (pod.Namespace != dv.Namespace || metav1.IsControlledBy(pod, dv))
}
