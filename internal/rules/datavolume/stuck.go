package datavolume

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/objectevent"
)

// Stuck is the object whose events tell why the DataVolume does not go on, nil
// while that is known or it is too early to ask: a claim that nobody has bound, or
// a worker with a node that has not started.
func Stuck(o Observed) metav1.Object {
	const early = 3 * time.Second
	dv := o.DataVolume
	if Ended(dv) || dv.DeletionTimestamp != nil || o.Claim == nil {
		return nil
	}
	noNode := o.Claim.Annotations[annSelectedNode] == ""
	switch w := look(o.Worker); {
	case w.exists && !w.started && w.reason == "" && o.Worker.Spec.NodeName != "" && o.Now.Sub(o.Worker.CreationTimestamp.Time) > early:
		return o.Worker
	case o.Claim.Status.Phase == corev1.ClaimBound || o.Now.Sub(o.Claim.CreationTimestamp.Time) < early:
		return nil
	case noNode && (w.exists || waits(o.Class)):
		return nil
	}
	return o.Claim
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
	return min(max(retry, d.Now.Sub(d.Claim.CreationTimestamp.Time)/share), most)
}

// Ended reports whether the DataVolume will not change any more by itself.
func Ended(dv *cdiv1.DataVolume) bool { return stages[dv.Status.Phase] == stageDone }
