package datavolume

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// A delay of this age is worth a question for its reason.
const early = 3 * time.Second

// Stuck returns the unbound claim or unstarted worker whose events explain a delay, nil if the reason is known or it
// is too early to ask.
func Stuck(o Observed) metav1.Object {
	dv := o.DataVolume
	if Ended(dv) || dv.DeletionTimestamp != nil || o.Claim == nil {
		return nil
	}
	switch w := observeWorker(o.Worker); {
	case w.exists && !w.started && w.reason == "" && o.Worker.Spec.NodeName != "" && o.Now.Sub(o.Worker.CreationTimestamp.Time) > early:
		return o.Worker
	case o.Restored != nil && unbound(o, o.Restored):
		return o.Restored
	case !unbound(o, o.Claim) || w.exists && o.Claim.Annotations[annSelectedNode] == "":
		return nil
	}
	return o.Claim
}

// unbound reports whether the claim has waited longer than early for its volume, not for a consumer.
func unbound(o Observed, claim *corev1.PersistentVolumeClaim) bool {
	return claim.Status.Phase != corev1.ClaimBound && o.Now.Sub(claim.CreationTimestamp.Time) >= early &&
		(!waits(o.Class) || claim.Annotations[annSelectedNode] != "")
}

// patience returns when to look at an unbound claim again, later for an older one. The provisioner reports delays in
// events, which are not watched.
func (d *decision) patience() time.Duration {
	const share, most = 10, time.Minute
	claim := d.Claim
	if d.restoring() {
		claim = d.Restored
	}
	return min(max(retry, d.Now.Sub(claim.CreationTimestamp.Time)/share), most)
}

// Ended reports whether the DataVolume has succeeded or failed.
func Ended(dv *cdiv1.DataVolume) bool { return stages[dv.Status.Phase] == stageDone }
