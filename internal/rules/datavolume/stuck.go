package datavolume

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
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
	switch w := look(o.Worker); {
	case w.exists && !w.started && w.reason == "" && o.Worker.Spec.NodeName != "" && o.Now.Sub(o.Worker.CreationTimestamp.Time) > early:
		return o.Worker
	case w.exists || o.Claim.Status.Phase == corev1.ClaimBound || o.Now.Sub(o.Claim.CreationTimestamp.Time) < early:
		return nil
	case waits(o.Class) && o.Claim.Annotations[annSelectedNode] == "":
		return nil
	}
	return o.Claim
}

// Ended reports whether the DataVolume will not change any more by itself.
func Ended(dv *cdiv1.DataVolume) bool { return stages[dv.Status.Phase] == stageDone }
