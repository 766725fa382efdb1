package datavolume

import (
	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/transfer"
)

// unready is the Ready condition of a DataVolume on its way. Why the worker
// failed stays there while it is tried again: a reader then sees both, and
// it is how the loop knows what it has told.
func (d *decision) unready(running condition) condition {
	switch f := d.worker.failure; {
	case f != nil:
		return isFalse(d.failureReason(), f.Message)
	case running.status == corev1.ConditionTrue:
		return isFalse(ReasonTransferRunning, "")
	}
	return isFalse("", "")
}

// failureReason names the worker's failure. Of a container image that could not be pulled it is CDI's word, whatever the
// worker has found.
func (d *decision) failureReason() string {
	reason := d.worker.failure.Reason
	if source := d.DataVolume.Spec.Source; source != nil && source.Registry != nil {
		switch reason {
		case transfer.ReasonSourceUnreachable, transfer.ReasonSourceRefused, transfer.ReasonUntrusted, transfer.ReasonCut:
			return ReasonImagePullFailed
		}
	}
	return string(reason)
}

// waitingReason names what the worker's container waits for: an image that its node pulls is the source.
func (d *decision) waitingReason() string {
	if source := d.DataVolume.Spec.Source; source != nil && NodePull(source.Registry) {
		switch d.worker.reason {
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName":
			return ReasonImagePullFailed
		}
	}
	return d.worker.reason
}

// reportFailure makes an event of a worker's failure that will be tried again: one
// for each reason, not one for each try, which may go on for days. What the
// scheduler, the kubelet and the storage driver say has events of theirs.
func (d *decision) reportFailure() {
	f := d.worker.failure
	if f == nil {
		return
	}
	if told := Condition(d.DataVolume, cdiv1.DataVolumeReady); told != nil && told.Reason == d.failureReason() {
		return
	}
	d.plan.Event = &Event{corev1.EventTypeWarning, d.failureReason(), f.Message}
}
