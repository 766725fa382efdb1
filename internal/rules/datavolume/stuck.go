package datavolume

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/objectevent"
)

// early is how long something may take without a reason.
const early = 3 * time.Second

// Stuck is the object whose events tell why the DataVolume does not go on, nil
// while that is known or it is too early to ask: a claim that nobody has bound, or
// a worker with a node that has not started.
func Stuck(o Observed) metav1.Object {
	dv := o.DataVolume
	if Ended(dv) || dv.DeletionTimestamp != nil || o.Claim == nil {
		return nil
	}
	switch w := look(o.Worker); {
	case w.exists && !w.started && w.reason == "" && o.Worker.Spec.NodeName != "" && o.Now.Sub(o.Worker.CreationTimestamp.Time) > early:
		return o.Worker
	case o.Restored != nil && unbound(o, o.Restored):
		return o.Restored
	case !unbound(o, o.Claim) || w.exists && o.Claim.Annotations[annSelectedNode] == "":
		return nil
	}
	return o.Claim
}

// unbound reports whether a claim has waited for its volume, and for no consumer, so long that there may be a reason.
func unbound(o Observed, claim *corev1.PersistentVolumeClaim) bool {
	return claim.Status.Phase != corev1.ClaimBound && o.Now.Sub(claim.CreationTimestamp.Time) >= early &&
		(!waits(o.Class) || claim.Annotations[annSelectedNode] != "")
}

// claimWarning is why the claim gets no volume, nil when nobody has said so.
func (d *decision) claimWarning() *objectevent.Warning {
	if d.Claim == nil || Stuck(d.Observed) != metav1.Object(d.Claim) {
		return nil
	}
	return d.Warning
}

// patience is after what time a claim without a volume is looked at again. Its provisioner says why in
// events, which wake nobody: the longer it has waited, the more rarely they are asked for.
func (d *decision) patience() time.Duration {
	const share, most = 10, time.Minute
	claim := d.Claim
	if d.restoring() {
		claim = d.Restored
	}
	return min(max(retry, d.Now.Sub(claim.CreationTimestamp.Time)/share), most)
}

// Ended reports whether the DataVolume will not change any more by itself.
func Ended(dv *cdiv1.DataVolume) bool { return stages[dv.Status.Phase] == stageDone }
