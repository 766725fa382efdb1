package datavolume

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/object/backoff"
)

func (d *decision) reached() stage {
	if d.Claim == nil || d.plan.AdoptClaim {
		return stagePending
	}
	if d.Claim.Status.Phase != corev1.ClaimBound {
		return d.reachedUnbound()
	}
	switch {
	case !d.how.byWorker() || d.worker.completed:
		return stageDone
	case d.how == methodUpload && d.worker.exists && !d.worker.ready:
		return stageScheduled
	case d.worker.started:
		return stageRunning
	case d.worker.exists:
		return stageScheduled
	}
	return stageBound
}

func (d *decision) reachedUnbound() stage {
	switch {
	case waits(d.Class) && WantsImmediate(d.DataVolume, d.Claim):
		return stagePending
	case waits(d.Class) && d.Claim.Annotations[annSelectedNode] == "":
		return stageWaiting
	case d.byDriver():
		return stageRunning
	}
	return stagePending
}

// byDriver reports whether the storage driver fills the claim when it creates the volume.
func (d *decision) byDriver() bool { return d.how == methodClone || d.how == methodRestore }

// The scheduler sets it for the first consumer.
const annSelectedNode = "volume.kubernetes.io/selected-node"

func (d *decision) step(reached stage) {
	waiting := waits(d.Class) && !WantsImmediate(d.DataVolume, d.Claim)
	phase, more := next(d.how.path(waiting), d.phase(), reached)
	if phase == d.phase() {
		return
	}
	d.plan.Status.Phase = phase
	d.plan.Again = d.plan.Again || more || phase == cdiv1.Pending || phase == cdiv1.PVCBound || phase == cdiv1.Succeeded
	if phase == cdiv1.Succeeded {
		d.plan.Status.Progress = progressDone
		d.plan.Event = &Event{corev1.EventTypeNormal, d.verb() + "Succeeded", fmt.Sprintf("Successfully filled PVC %s", d.DataVolume.Name)}
	}
}

func (d *decision) verb() string {
	switch d.how {
	case methodUpload:
		return "Upload"
	case methodCopy, methodClone, methodRestore:
		return "Clone"
	}
	return "Import"
}

func (d *decision) conditions() {
	d.set(cdiv1.DataVolumeBound, d.bound())
	if d.plan.Status.Phase == cdiv1.Succeeded {
		d.set(cdiv1.DataVolumeReady, isTrue("", ""))
		d.set(cdiv1.DataVolumeRunning, isFalse(ReasonCompleted, d.verb()+" Complete"))
		return
	}
	switch {
	case d.worker.running && d.Progress == nil && !d.isPhaseChanging():
		d.needs(NeedProgress)
	case !d.WarningAsked && Stuck(d.Observed) != nil:
		d.needs(NeedWarning)
	}
	if d.worker.running && !d.isProgressRecent() {
		d.plan.Status.Progress = grown(d.plan.Status.Progress, d.Progress)
	}
	running, after := d.working()
	if after > 0 {
		d.plan.After = after
	}
	d.set(cdiv1.DataVolumeReady, d.unready(running))
	d.set(cdiv1.DataVolumeRunning, running)
}

func (d *decision) bound() condition {
	if w := d.Warning; d.Claim != nil && w != nil && Stuck(d.Observed) == metav1.Object(d.Claim) {
		return isFalse(w.Reason, w.Message)
	}
	return boundCondition(d.DataVolume, d.Claim)
}

func (d *decision) isPhaseChanging() bool { return d.plan.Status.Phase != d.phase() }

// working also returns when to look again at a state without a watch.
func (d *decision) working() (condition, time.Duration) {
	w := &d.worker
	switch {
	case d.restoring() && d.Warning != nil:
		return isFalse(d.Warning.Reason, d.Warning.Message), d.patience()
	case w.running:
		return d.progressing(), pace
	case w.failure != nil:
		return isFalse(d.failureReason(), w.failure.Message), 0
	case w.reason != "":
		return isFalse(d.waitingReason(), w.waiting), 0
	case d.Warning != nil:
		return isFalse(d.Warning.Reason, d.Warning.Message), d.patience()
	case w.exists:
		return isFalse(ReasonPending, "the worker pod is starting"), d.lookAgain(d.Worker.CreationTimestamp.Time)
	case d.Claim == nil:
		return isFalse("", ""), 0
	}
	return d.binding()
}

func (d *decision) binding() (condition, time.Duration) {
	reached := d.reached()
	switch {
	case reached == stageWaiting:
		return isFalse(ReasonWaiting, "the claim is bound where the first pod that uses it is scheduled; "+
			"annotate the DataVolume with "+layout.AnnImmediate+" not to wait"), 0
	case d.byDriver() && reached == stageRunning:
		return isTrue(ReasonTransferRunning, "the storage driver makes the volume"), d.patience()
	case d.restoring():
		return isFalse(ReasonPending, fmt.Sprintf("the VolumeSnapshot is being restored to the claim %s/%s, from which it is copied",
			d.Restored.Namespace, d.Restored.Name)), d.patience()
	case d.byDriver(), d.Claim.Status.Phase == corev1.ClaimBound:
		return isFalse("", ""), 0
	}
	return isFalse(ReasonPending, "the claim is waiting for its volume"), d.patience()
}

func (d *decision) progressing() condition {
	if d.isProgressRecent() {
		last := Condition(d.DataVolume, cdiv1.DataVolumeRunning)
		return isTrue(last.Reason, last.Message)
	}
	if d.Unreachable && d.Now.Sub(d.worker.since) > reachable {
		return isTrue(ReasonPodRunning, fmt.Sprintf(unreachable, d.DataVolume.Namespace))
	}
	return isTrue(ReasonPodRunning, describe(d.Progress))
}

const (
	// reachable is a running worker's time until its network is ready.
	reachable   = 15 * time.Second
	unreachable = "the worker runs, and Drydock gets no answer from it: a NetworkPolicy of the namespace %s may keep Drydock from its pods of the label " +
		"app=containerized-data-importer; uploads and clones don't reach them either then, and docs/uploads.md has the policy that lets them in"
)

func (d *decision) isProgressRecent() bool {
	last := Condition(d.DataVolume, cdiv1.DataVolumeRunning)
	return last != nil && last.Status == corev1.ConditionTrue && !d.isPhaseChanging() &&
		d.Now.Sub(last.LastHeartbeatTime.Time) < pace && last.Message != ""
}

func (d *decision) stopAt(o *obstacle) {
	if o.permanent {
		d.fail(o.reason, o.message)
		return
	}
	if o.reason == ReasonSourceNotFound && d.Now.Sub(d.DataVolume.CreationTimestamp.Time) < arrival {
		o = &obstacle{reason: ReasonSourceNotReady, message: o.message + " yet", passing: true}
	}
	last := Condition(d.DataVolume, cdiv1.DataVolumeRunning)
	if last == nil || last.Reason != o.reason {
		d.plan.Event = &Event{corev1.EventTypeWarning, o.reason, o.message}
		if o.passing {
			d.plan.Event.Type = corev1.EventTypeNormal
		}
	}
	d.set(cdiv1.DataVolumeRunning, isFalse(o.reason, o.message))
	d.set(cdiv1.DataVolumeReady, isFalse(o.reason, ""))
	d.plan.After = retry
	inUse := o.reason == ReasonClaimInUse || o.reason == ReasonSourceInUse
	if inUse && last != nil && last.Reason == o.reason && last.Message == o.message {
		d.plan.After = d.lookAgain(last.LastHeartbeatTime.Time) // when reason and message last changed
	}
}

// arrival is how long a clone waits for its source without a warning: one manifest may have both.
const arrival = 30 * time.Second

// No watch reports the users of a claim, nor a clone's source. Listing them reads all pods and guests, so a use that
// lasts is looked at less often.
const (
	retry        = 5 * time.Second
	longestRetry = time.Minute
)

func (d *decision) lookAgain(since time.Time) time.Duration {
	return backoff.Growing(d.Now.Sub(since), retry, longestRetry)
}

func (d *decision) fail(reason, message string) {
	d.plan = Plan{Status: d.plan.Status, Again: true}
	d.plan.Status.Phase = cdiv1.Failed
	d.set(cdiv1.DataVolumeBound, boundCondition(d.DataVolume, d.Claim))
	d.set(cdiv1.DataVolumeRunning, isFalse(reason, message))
	d.set(cdiv1.DataVolumeReady, isFalse(ReasonError, message))
	d.plan.Event = &Event{corev1.EventTypeWarning, d.verb() + "Failed", message}
}

func (d *decision) set(kind cdiv1.DataVolumeConditionType, c condition) {
	set(&d.plan.Status.Conditions, kind, c, d.Now)
}
