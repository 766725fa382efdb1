package datavolume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/transfer"
)

func TestAClaimTakesOneUploadOfItsOwn(t *testing.T) {
	ready := running()
	ready.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	tests := map[string]struct {
		claim    func(*corev1.PersistentVolumeClaim)
		worker   *corev1.PodStatus
		creates  bool
		deletes  bool
		phase    string
		podReady string
	}{
		"its worker is made":                  {creates: true, phase: "Pending", podReady: "false"},
		"not while it waits for its consumer": {claim: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }},
		"unless the worker shall be the first": {
			claim: func(c *corev1.PersistentVolumeClaim) {
				c.Status.Phase, c.Annotations[AnnImmediate] = corev1.ClaimPending, ""
			}, creates: true, phase: "Pending", podReady: "false",
		},
		"a worker that listens is told of": {worker: &ready, phase: "Running", podReady: "true"},
		"one that has the image, too":      {worker: new(completed()), phase: "Succeeded", podReady: "false"},
		"then it goes": {
			claim: func(c *corev1.PersistentVolumeClaim) { c.Annotations[AnnPodPhase] = "Succeeded" }, worker: new(completed()), deletes: true,
		},
		"and no other comes": {claim: func(c *corev1.PersistentVolumeClaim) { c.Annotations[AnnPodPhase] = "Succeeded" }},
		"an image that is none ends it": {
			worker: new(restarting(1, transfer.Result{Reason: transfer.ReasonInvalidImage, Message: "no image"})), phase: "Failed", podReady: "false",
		},
		"a claim that is deleted is let go": {
			claim:  func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: noon} },
			worker: &ready, deletes: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := ObservedUpload{
				Claim: &corev1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", UID: "1-2", Annotations: map[string]string{AnnUploadTarget: ""}},
					Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
				},
				Class: class(storagev1.VolumeBindingWaitForFirstConsumer), Config: ConfigOf(nil),
			}
			if test.claim != nil {
				test.claim(o.Claim)
			}
			if test.worker != nil {
				o.Worker = &corev1.Pod{Status: *test.worker}
			}
			p := DecideUpload(o)
			if (p.CreateWorker != nil) != test.creates || p.DeleteWorker != test.deletes ||
				p.Annotations[AnnPodPhase] != test.phase || p.Annotations[AnnPodReady] != test.podReady {
				t.Errorf("creates %v, deletes %v, annotates %v", p.CreateWorker != nil, p.DeleteWorker, p.Annotations)
			}
		})
	}
}
