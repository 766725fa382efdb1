package workerpod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/datavolume"
)

func TestAWorkerFollowsABoundClaimPastTaints(t *testing.T) {
	for phase, want := range map[corev1.PersistentVolumeClaimPhase]int{corev1.ClaimBound: 1, corev1.ClaimPending: 0} {
		claim := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
		dv := &cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}}}
		pod, err := Pod(&datavolume.Worker{Name: "worker", Claim: claim}, dv, Settings{})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(pod.Spec.Tolerations); got != want {
			t.Errorf("a worker of a claim that is %s has %d tolerations, want %d", phase, got, want)
		}
	}
}
