package datavolume

import (
	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/transfer"
)

// unready keeps the last failure's reason during the next attempt, for the user and for reportFailure.
func (d *decision) unready(running condition) condition {
	switch f := d.worker.failure; {
	case f != nil:
		return isFalse(d.failureReason(), f.Message)
	case running.status == corev1.ConditionTrue:
		return isFalse(ReasonTransferRunning, "")
	}
	return isFalse("", "")
}

// CDI has a reason of its own for an image that can't be pulled.
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

// waitingReason treats a failed pull of the container's image as the import's, if that is its source.
func (d *decision) waitingReason() string {
	if source := d.DataVolume.Spec.Source; source != nil && NodePull(source.Registry) {
		switch d.worker.reason {
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName":
			return ReasonImagePullFailed
		}
	}
	return d.worker.reason
}

// reportFailure plans one event for each new reason: attempts may go on for days. The scheduler, the kubelet and the
// storage driver report their failures themselves.
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
