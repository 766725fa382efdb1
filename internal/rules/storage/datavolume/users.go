package datavolume

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// A claim is filled by its worker alone, and a guest gets it afterwards (decision 640):
//
//	the worker  the claim is marked as unfilled: its DataVolume has not succeeded, or it awaits an upload
//	            virt-controller asks the API server for pods and guests that use the claim
//	            if there is none, it creates the worker; virt-api asks again before an upload's first byte
//	the guest   the launcher pod has a node, or the attachment pod is recorded
//	            virt-controller asks the API server for the claim, its DataVolume and its workers
//	            if the claim is filled, the guest gets it
//
// Each side becomes visible before it looks for the other, so at least one sees the other. If both do, the guest waits.

// Uses reports whether a container of the pod mounts the claim, now or later. A provisioning pod has the claim in its
// volumes only: it binds it and does not use it.
func Uses(pod *corev1.Pod, claim string) bool {
	return !podstatus.Terminal(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return ClaimNamed(pod, &v) == claim && Mounted(&pod.Spec, v.Name)
	})
}

// Writes reports whether the pod may write to the claim. The workers that read a clone's source do not.
func Writes(pod *corev1.Pod, claim string) bool {
	return !podstatus.Terminal(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return ClaimNamed(pod, &v) == claim && (v.PersistentVolumeClaim == nil || !v.PersistentVolumeClaim.ReadOnly)
	})
}

// ClaimNamed returns the claim of a pod's volume, "" for none. Kubernetes names an ephemeral volume's claim after both.
func ClaimNamed(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// Mounted reports whether a container mounts the volume.
func Mounted(spec *corev1.PodSpec, volume string) bool {
	has := func(mounts []corev1.VolumeMount, devices []corev1.VolumeDevice) bool {
		return slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name == volume }) ||
			slices.ContainsFunc(devices, func(d corev1.VolumeDevice) bool { return d.Name == volume })
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if has(c.VolumeMounts, c.VolumeDevices) {
			return true
		}
	}
	return slices.ContainsFunc(spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool {
		return has(c.VolumeMounts, c.VolumeDevices)
	})
}

// UserOf returns the first pod besides the workers that uses the claim. Spared pods let it be filled first.
func UserOf(pods []corev1.Pod, claim string, spared func(*corev1.Pod) (bool, error)) (string, error) {
	workers := Workers(claim)
	for i := range pods {
		pod := &pods[i]
		if !Uses(pod, claim) || slices.Contains(workers, pod.Name) {
			continue
		}
		spare, err := spared(pod)
		if err != nil {
			return "", err
		}
		if !spare {
			return pod.Name, nil
		}
	}
	return "", nil
}

// Workers returns the names of the pods that may fill the claim.
func Workers(claim string) []string {
	return []string{transfer.UploadName(claim), importerName(claim)}
}

// AwaitsUpload reports whether an upload without a DataVolume has yet to fill the claim. One whose content the worker
// refused to replace is unchanged and awaits none.
func AwaitsUpload(claim *corev1.PersistentVolumeClaim) bool {
	if claim == nil || !TakesUpload(claim) {
		return false
	}
	switch corev1.PodPhase(claim.Annotations[layout.AnnPodPhase]) {
	case corev1.PodSucceeded:
		return false
	case corev1.PodFailed:
		return claim.Annotations[layout.AnnRunningReason] != string(transfer.ReasonHasContent)
	}
	return true
}

// Unfilled returns why the claim may not be used yet, "" if it may. Its owner dv may be nil.
func Unfilled(claim *corev1.PersistentVolumeClaim, dv *cdiv1.DataVolume) string {
	owner := metav1.GetControllerOf(claim)
	switch owned := owner != nil && owner.Kind == "DataVolume"; {
	case owned && dv == nil:
		return fmt.Sprintf("the DataVolume %s, which fills the claim %s, does not exist", owner.Name, claim.Name)
	case owned && dv.Status.Phase != cdiv1.Succeeded:
		return fmt.Sprintf("the claim %s is not filled yet by its DataVolume %s", claim.Name, dv.Name)
	case AwaitsUpload(claim):
		return uploadAwaited(claim)
	}
	return ""
}

func uploadAwaited(claim *corev1.PersistentVolumeClaim) string {
	if claim.Annotations[layout.AnnPodPhase] == string(corev1.PodFailed) {
		return fmt.Sprintf("the upload to the claim %s has failed (%s): upload again with --overwrite, or take away the claim's annotation %s to use it as it is",
			claim.Name, claim.Annotations[layout.AnnRunningMessage], layout.AnnUploadTarget)
	}
	return fmt.Sprintf("the claim %s awaits an upload: upload its disk, or take away its annotation %s to use it as it is", claim.Name, layout.AnnUploadTarget)
}

func (d *decision) used() *obstacle {
	d.fills = true
	if !d.UsersAsked || d.UsedBy == "" {
		return nil
	}
	return &obstacle{reason: ReasonClaimInUse, message: usedBy(d.UsedBy, d.DataVolume.Name)}
}

func usedBy(user, claim string) string {
	return fmt.Sprintf("%s is using the claim %s: the claim is filled when that has ended", user, claim)
}
