package client

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Ended reports whether the phase is final.
func Ended(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// UsesClaim reports whether a pod that has not ended uses the claim.
func UsesClaim(pod *corev1.Pod, claim string) bool {
	return !Ended(pod.Status.Phase) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}
