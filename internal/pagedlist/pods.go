package pagedlist

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// Pods returns the pods that wanted accepts, with only the fields by which the rules know whether a pod uses or may write
// to one of the claims, and whose it is. A rule that reads more must keep it here. The pods must not be written.
func Pods(ctx context.Context, reader client.Reader, claims []string, wanted func(*corev1.Pod) bool, options ...client.ListOption) ([]corev1.Pod, error) {
	return Collect(ctx, reader, &corev1.PodList{}, func(pod *corev1.Pod) (corev1.Pod, bool) {
		if !wanted(pod) {
			return corev1.Pod{}, false
		}
		return part(pod, claims), true
	}, options...)
}

func part(pod *corev1.Pod, claims []string) corev1.Pod {
	names := []string{v1.AppLabel, v1.CreatedByLabel, v1.DeprecatedVirtualMachineNameLabel, v1.MigrationJobLabel, layout.MaintenanceForLabel}
	for _, claim := range claims {
		names = append(names, layout.ClaimLabel(claim))
	}
	labels := map[string]string{}
	for _, name := range names {
		if value, is := pod.Labels[name]; is {
			labels[name] = value
		}
	}
	out := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp, Labels: labels,
	}}
	if vmi, is := pod.Annotations[v1.DomainAnnotation]; is {
		out.Annotations = map[string]string{v1.DomainAnnotation: short(vmi)}
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		owner.APIVersion, owner.Kind, owner.Name = short(owner.APIVersion), short(owner.Kind), short(owner.Name)
		out.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	if lock.Kept(pod) {
		lock.Keep(&out)
	}
	if lock.Gated(pod) {
		out.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: layout.MaintenanceGate}}
	}
	out.Spec.NodeName, out.Status.Phase = pod.Spec.NodeName, pod.Status.Phase
	claimVolumes(pod, claims, &out.Spec)
	return out
}

// claimVolumes keeps the pod's volumes of the claims, and in one container which of them are mounted. Of a claim's
// volumes, one of each kind suffices.
func claimVolumes(pod *corev1.Pod, claims []string, out *corev1.PodSpec) {
	type kind struct {
		claim             string
		readOnly, mounted bool
	}
	seen := sets.Set[kind]{}
	var mounts []corev1.VolumeMount
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		k := kind{claim: datavolume.ClaimNamed(pod, v), readOnly: v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly, mounted: true}
		if !slices.Contains(claims, k.claim) || seen.Has(k) {
			continue
		}
		if k.mounted = datavolume.Mounted(&pod.Spec, v.Name); seen.Has(k) {
			continue
		}
		seen.Insert(k)
		source := corev1.VolumeSource{PersistentVolumeClaim: v.PersistentVolumeClaim}
		if v.PersistentVolumeClaim == nil {
			source.Ephemeral = &corev1.EphemeralVolumeSource{}
		}
		out.Volumes = append(out.Volumes, corev1.Volume{Name: v.Name, VolumeSource: source})
		if k.mounted {
			mounts = append(mounts, corev1.VolumeMount{Name: v.Name})
		}
	}
	if len(mounts) > 0 {
		out.Containers = []corev1.Container{{VolumeMounts: mounts}}
	}
}

// short cuts a text of the pod's author, so that a longer one is still not a name.
func short(text string) string {
	return strings.Clone(text[:min(len(text), validation.DNS1123SubdomainMaxLength+1)])
}
